//! Ways around the proxy of programs that may reach some hosts.

use anyhow::Result;

use super::{attempt, by, escapee, owned};
use crate::{
    place::Place,
    trial::{Attempt, Scene},
};

/// What a machine says that can hold programs to hosts.
const NEEDS: &str = "by name active";

/// The words of the hostile program in a place.
type Words = fn(&Place) -> Result<Vec<String>>;

/// A name, who refuses, what the record says of it, and the words.
const TRIED: [(&str, &str, &str, Words); 9] = [
    ("a host that is not listed", by::PROXY, "is not on the list of hosts", |it| {
        Ok(owned(&["proxy", &it.tcp()?]))
    }),
    ("a host by another spelling of its address", by::PROXY, "is not on the list of hosts", |it| {
        let (_, port) = split(it)?;
        Ok(owned(&["proxy", &format!("2130706433:{port}")]))
    }),
    ("a listed host at a private address", by::PROXY, "an address of this machine", |_| {
        Ok(owned(&["proxy", "localhost:443"]))
    }),
    ("a cloud's metadata", by::PROXY, "an address that no request is sent to", |_| {
        Ok(owned(&["proxy", "169.254.169.254:80"]))
    }),
    ("a wrong token", by::PROXY, "its token is not that of this run", |_| {
        Ok(owned(&["proxy", "docs.rs:443", "wrong token"]))
    }),
    ("a connection past the proxy", by::OWN_NETWORK, "refused: tcp", |it| {
        Ok(owned(&["tcp", &it.tcp()?]))
    }),
    ("the proxy's port at another address", by::OWN_NETWORK, "refused: beside the proxy", |_| {
        Ok(owned(&["beside the proxy", "192.0.2.1"]))
    }),
    ("DNS beside the proxy", by::FILTER, "refused: name", |it| Ok(owned(&["name", &it.names()?]))),
    ("a Unix socket beside the proxy", by::FILTER, "refused: unix", |it| {
        Ok(owned(&["unix", &it.outside("socket")]))
    }),
];

pub(super) fn all() -> Vec<Attempt> {
    let described = |(name, by, sign, words): (&'static str, &'static str, &'static str, Words)| {
        let tried = attempt(name, "exec", by, move |place| {
            let mut scene = Scene::new(vec![vec![escapee(&words(place)?)]], &[sign]);
            scene.config += "[permissions.network]\nhosts = [\"docs.rs\", \"localhost\", \"169.254.169.254\"]\n\
                 allow_private = [\"169.254.169.254\"]\n";
            Ok(scene)
        });
        Attempt { needs: NEEDS, ..tried }
    };
    TRIED.into_iter().map(described).collect()
}

/// Returns the host and the port of a listener.
fn split(place: &Place) -> Result<(String, String)> {
    let at = place.tcp()?;
    let (host, port) = at.rsplit_once(':').unwrap_or((&at, ""));
    Ok((host.to_owned(), port.to_owned()))
}
