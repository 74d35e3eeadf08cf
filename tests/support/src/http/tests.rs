use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Gate, Reply, Server};

const GET: &[u8] = b"GET /v1/models?limit=2 HTTP/1.1\r\nhost: x\r\n\r\n";
const POST: &[u8] = b"POST /v1/chat HTTP/1.1\r\nHost: x\r\ncontent-length: 4\r\n\r\n{\"\":";

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// Sends `request` and reads exactly as much as is expected.
async fn exchange(stream: &mut TcpStream, request: &[u8], expected: &str) {
    stream.write_all(request).await.unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[tokio::test]
async fn replies_to_a_path_come_in_their_order_over_one_connection() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/models", Reply::json(429, "{}").header("retry-after", "1"));
    server.reply("/v1/models", Reply::new(200).chunk("ab").chunk("c"));
    let mut client = connect(&server).await;

    exchange(&mut client, GET, "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}").await;
    exchange(
        &mut client,
        GET,
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    )
    .await;
    exchange(&mut client, GET, "HTTP/1.1 599 Scripted\r\n").await;
}

#[tokio::test]
async fn a_request_is_recorded_whole() {
    let server = Server::start().await.unwrap();
    let mut client = connect(&server).await;

    client.write_all(POST).await.unwrap();
    client.write_all(b"POST /v1/chat HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n12\r\n1\r\n3\r\n0\r\n\r\n").await.unwrap();
    let requests = server.wait_for_requests(2).await;

    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(
        (first.method.as_str(), first.path(), first.text().as_str()),
        ("POST", "/v1/chat", "{\"\":")
    );
    assert_eq!(first.header("HOST"), Some("x"));
    assert_eq!(second.text(), "123");
}

#[tokio::test]
async fn a_captured_response_is_sent_byte_for_byte_and_closed() {
    let server = Server::start().await.unwrap();
    let captured = b"HTTP/1.1 200 OK\r\nX-Odd:  two spaces\r\nconnection: close\r\n\r\n\xff\xfe";
    server.reply("/v1/chat", Reply::captured(captured));
    let mut client = connect(&server).await;

    client.write_all(POST).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();

    assert_eq!(answer, captured);
}

#[tokio::test]
async fn the_rest_of_a_reply_waits_for_its_gate() {
    let server = Server::start().await.unwrap();
    let gate = Gate::new();
    server.reply(
        "/v1/chat",
        Reply::event_stream().chunk("data: 1\n\n").pause(&gate).chunk("data: 2\n\n"),
    );
    let mut client = connect(&server).await;

    exchange(&mut client, POST, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n").await;
    gate.reached().await;
    let before = client.try_read(&mut [0; 64]).map_err(|error| error.kind());
    gate.open();

    assert_eq!(before, Err(std::io::ErrorKind::WouldBlock));
    exchange(&mut client, b"", "9\r\ndata: 2\n\n\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_cut_stream_ends_before_its_closing_chunk() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/chat", Reply::sse("data: é\n\ndata: 2\n\n").cut());
    let mut client = connect(&server).await;

    client.write_all(POST).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();

    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.ends_with("\r\n\r\na\r\ndata: é\n\n\r\n9\r\ndata: 2\n\n\r\n"), "{answer:?}");
}

#[tokio::test]
async fn a_reset_connection_fails_the_read() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/chat", Reply::event_stream().chunk("x").reset());
    let mut client = connect(&server).await;

    client.write_all(POST).await.unwrap();
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();

    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_stalled_reply_ends_when_the_client_leaves() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/chat", Reply::new(200).body("half").stall());
    let mut client = connect(&server).await;

    exchange(&mut client, POST, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhalf").await;
    drop(client);

    server.wait_for_closed(1).await;
}

#[tokio::test]
async fn chunks_of_a_size_cut_characters_where_they_fall() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/chat", Reply::sse_in("é!", 1).cut());
    let mut client = connect(&server).await;

    client.write_all(POST).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();

    assert!(answer.ends_with(b"\r\n\r\n1\r\n\xc3\r\n1\r\n\xa9\r\n1\r\n!\r\n"), "{answer:?}");
}
