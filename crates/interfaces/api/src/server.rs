//! A socket that the interface is served on.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use formwork_protocols::Cancel;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{Api, Limits};

/// The most header lines of a request.
const HEADERS: usize = 64;

/// The most bytes of a head: several times what a browser sends.
const HEAD: usize = 32 << 10;

/// The most bytes that are held of a connection: a head, and as much of the body as comes with it.
const BUFFER: usize = 64 << 10;

/// How long it is waited where the system gives no connection, as for want of files.
const AGAIN: Duration = Duration::from_millis(200);

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", said(source))]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}

/// Says what the system means.
fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "something else listens there".to_owned(),
        io::ErrorKind::AddrNotAvailable => "it is no address of this machine".to_owned(),
        io::ErrorKind::PermissionDenied => "the system keeps that port for others".to_owned(),
        _ => error.to_string(),
    }
}

impl BindError {
    /// Says what to do.
    pub fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => "take a port of 1024 or more",
            io::ErrorKind::AddrNotAvailable => {
                "take 127.0.0.1, or an address that this machine has"
            }
            _ => "take another port, or port 0 for one that is free",
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens on an address; port 0 is one that is free.
    ///
    /// # Errors
    /// [`BindError`] says why not.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves an interface until `cancel` is raised. Then no connection is taken any more, streams end, and calls that are under way are
    /// waited for, for as long as the limits say, and told so where they take longer.
    pub async fn run(self, api: &Api, cancel: &Cancel) {
        let limits = api.inner.limits;
        let router = api.router();
        let mut open = JoinSet::new();
        let places = Arc::new(Semaphore::new(limits.connections));
        loop {
            while open.try_join_next().is_some() {}
            // Whoever finds no place waits with the system, which has a bound of its own.
            let taken = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, self.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                taken = taken => taken,
            };
            match accepted {
                Ok((socket, _)) => {
                    let serving = serve(socket, router.clone(), limits, cancel.child());
                    open.spawn(async move {
                        let _place = place;
                        serving.await;
                    });
                }
                // It left before it was taken.
                Err(error) if is_of_one(&error) => {}
                Err(_) => tokio::select! {
                    () = cancel.cancelled() => break,
                    () = tokio::time::sleep(AGAIN) => {}
                },
            }
        }
        drop(self.listener);
        let ended = async {
            let closed = async { while open.join_next().await.is_some() {} };
            tokio::join!(closed, api.close());
        };
        // An answer that nobody reads holds nobody up.
        let _ = tokio::time::timeout(limits.leave + limits.leave / 2, ended).await;
        open.shutdown().await;
    }
}

/// Serves one connection. What it fails of concerns nobody else.
async fn serve(socket: TcpStream, router: Router, limits: Limits, ends: Cancel) {
    // What happens is told at once, however short it is.
    let _ = socket.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_headers(HEADERS)
        .max_header_size(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ends.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
