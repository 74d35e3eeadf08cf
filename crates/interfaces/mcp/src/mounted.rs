//! Over HTTP, mounted in a server of somebody else's: requests as they were received, and what is answered.

use formwork_services::{Formwork, capability::Caller};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    message::{self, Fault, Message},
    revision,
    server::Server,
};

/// The largest message, in bytes: no person's program writes a larger one.
pub const LARGEST: usize = 4 * 1024 * 1024;

/// Answers requests of HTTP that somebody else has received, at whatever path. Clones share how many calls go on at once.
///
/// No session is kept: each request is answered by itself, with JSON. Whoever mounts it checks who asks, `Host` and `Origin`, as for its
/// other paths, reads no more of a body than [`LARGEST`], and puts whom it has found out into the extensions of the request.
///
/// ```
/// use formwork_mcp::Mounted;
/// use formwork_services::Builder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workspace = tempfile::tempdir()?;
/// let formwork = Builder::new(workspace.path()).build().await?;
/// let mounted = Mounted::new(&formwork);
///
/// let answer = mounted.answer(http::Request::post("/mcp").body("{}")?).await;
///
/// assert_eq!(answer.status(), 401);
/// # formwork.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mounted {
    server: Server,
}

impl Mounted {
    /// Offers what a Formwork can do.
    pub fn new(formwork: &Formwork) -> Self {
        Self { server: Server::new(formwork) }
    }

    /// Answers a request, with the powers of the [`Caller`] in its extensions; without one it is refused.
    ///
    /// Cancel safe: what only reads ends with a dropped future, and what writes is done to its end.
    pub async fn answer(&self, request: Request<impl AsRef<[u8]>>) -> Response<Vec<u8>> {
        let (parts, body) = request.into_parts();
        let body = body.as_ref();
        let Some(caller) = parts.extensions.get::<Caller>() else {
            return empty(StatusCode::UNAUTHORIZED);
        };
        // There is no stream of the server's own, and no session that could be ended.
        if parts.method != Method::POST {
            let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            return answer;
        }
        if !says(&parts.headers, &header::CONTENT_TYPE, &["application/json"]) {
            return empty(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        if !says(&parts.headers, &header::ACCEPT, &["application/json", "application/*", "*/*"]) {
            return empty(StatusCode::NOT_ACCEPTABLE);
        }
        if body.len() > LARGEST {
            return empty(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let (id, method, params) = match message::parse(body) {
            Err(answer) => return json(StatusCode::BAD_REQUEST, &answer),
            Ok(Message::Answer | Message::Notification { .. }) => {
                return empty(StatusCode::ACCEPTED);
            }
            Ok(Message::Request { id, method, params }) => (id, method, params),
        };
        if let Err(fault) = revision::beside(&parts.headers, &method, &params) {
            return json(StatusCode::BAD_REQUEST, &fault.answer(id));
        }
        let asked = (id.clone(), method.as_str(), params);
        let answer = self.server.answer(caller, asked, &CancellationToken::new()).await;
        let answer = answer.unwrap_or_else(|| Fault::request("the call was broken off").answer(id));
        json(StatusCode::OK, &answer)
    }

    /// Waits until all is done that has begun to change something. Nothing is to be asked any more by then.
    pub async fn close(&self) {
        self.server.close().await;
    }
}

/// Tells whether a header says one of these, whatever else it says.
fn says(headers: &HeaderMap, name: &header::HeaderName, wanted: &[&str]) -> bool {
    let said = headers.get_all(name).iter().filter_map(|said| said.to_str().ok());
    let mut parts = said.flat_map(|said| said.split(','));
    parts.any(|part| {
        let kind = part.split(';').next().unwrap_or_default().trim();
        wanted.iter().any(|wanted| kind.eq_ignore_ascii_case(wanted))
    })
}

fn empty(status: StatusCode) -> Response<Vec<u8>> {
    let mut answer = Response::new(Vec::new());
    *answer.status_mut() = status;
    answer
}

fn json(status: StatusCode, message: &Value) -> Response<Vec<u8>> {
    let mut answer = Response::new(message.to_string().into_bytes());
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
