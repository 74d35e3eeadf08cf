//! Under which names a server is asked for: what keeps a page of somebody else from using a browser that can reach it.
//!
//! A page whose name was made to mean this machine (DNS rebinding) sends that name as `Host`, and its own origin. An address in
//! numbers cannot be made to mean another one, so it is taken as it is.

use std::{collections::BTreeSet, net::IpAddr};

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// The names that a server answers to, beside its addresses and `localhost`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    names: BTreeSet<String>,
}

/// Why a request is not for this server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refused {
    /// A request says once for whom it is.
    #[error("a request has one Host header, this has {found}")]
    Hosts { found: usize },
    /// It is for somebody else, or a name was made to mean this server.
    #[error("this server does not answer to {host:?}")]
    Host { host: String },
    /// A page of somebody else has a browser ask.
    #[error("a page of {origin:?} may not ask this server")]
    Origin { origin: String },
}

impl Hosts {
    /// Adds a name, as in `formwork.example.org`.
    #[must_use]
    pub fn and(mut self, name: &str) -> Self {
        self.names.insert(plain(name).to_owned());
        self
    }

    /// Tells whether a name is one of this server.
    fn admits(&self, host: &str) -> bool {
        let host = plain(host).to_ascii_lowercase();
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(&host);
        host == "localhost"
            || host.ends_with(".localhost")
            || bare.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(&host))
    }

    /// Checks for whom a request is, and which page has it sent.
    ///
    /// # Errors
    /// [`Refused`] says why it is not answered.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let found = headers.get_all(header::HOST).iter().count();
        let (Some(host), 1) = (hosts.next(), found) else { return Err(Refused::Hosts { found }) };
        let text = String::from_utf8_lossy(host.as_bytes()).into_owned();
        let authority = text.parse::<Authority>().ok().filter(|it| !it.as_str().contains('@'));
        let is_ours = |authority: &Authority| self.admits(authority.host());
        let Some(authority) = authority.filter(is_ours) else {
            return Err(Refused::Host { host: text });
        };
        // One that is written whole says it a second time, and counts before the header.
        if let Some(named) = uri.authority().filter(|it| !is_ours(it)) {
            return Err(Refused::Host { host: named.to_string() });
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
            let from = origin.parse::<Uri>().ok();
            let is_web = |it: &Uri| matches!(it.scheme_str(), Some("http" | "https"));
            let from = from.as_ref().filter(|it| is_web(it)).and_then(Uri::authority);
            let is_own = |it: &&Authority| it.as_str().eq_ignore_ascii_case(authority.as_str());
            if from.filter(is_own).is_none() {
                return Err(Refused::Origin { origin });
            }
        }
        Ok(())
    }
}

/// Returns a name without the dot that may end one.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(headers: &[(header::HeaderName, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let hosts = Hosts::default().and("formwork.example.org");
        hosts.check(&Uri::from_static("/v1/runs.list"), &map).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_localhost_and_a_name_that_was_given_are_answered() {
        for host in [
            "127.0.0.1:4676",
            "[::1]:4676",
            "10.0.0.7",
            "localhost:4676",
            "LOCALHOST.",
            "runs.localhost",
            "formwork.example.org",
            "Formwork.Example.org:443",
        ] {
            assert_eq!(check(&[(header::HOST, host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_name_that_was_made_to_mean_this_machine_is_refused() {
        for host in [
            "rebound.example",
            "127.0.0.1.example",
            "localhost.example",
            "notlocalhost",
            "xformwork.example.org",
            "user@localhost",
            "",
            "a b",
            "\u{e9}",
        ] {
            let refused = check(&[(header::HOST, host)]).unwrap_err();
            assert!(refused.contains("does not answer to"), "{host}: {refused}");
        }
    }

    #[test]
    fn a_request_says_once_for_whom_it_is() {
        let twice = [(header::HOST, "localhost"), (header::HOST, "localhost")];

        assert_eq!(check(&[]), Err("a request has one Host header, this has 0".to_owned()));
        assert_eq!(check(&twice), Err("a request has one Host header, this has 2".to_owned()));
        let (hosts, mut map) = (Hosts::default(), HeaderMap::new());
        map.insert(header::HOST, HeaderValue::from_static("localhost"));
        let whole = Uri::from_static("http://rebound.example/v1/runs.list");
        assert!(matches!(hosts.check(&whole, &map), Err(Refused::Host { .. })));
    }

    #[test]
    fn a_page_of_somebody_else_is_refused_and_one_of_this_server_is_not() {
        let from = |origin| check(&[(header::HOST, "localhost:4676"), (header::ORIGIN, origin)]);

        assert_eq!(from("http://localhost:4676"), Ok(()));
        for origin in [
            "http://localhost",
            "http://localhost:80",
            "https://evil.example",
            "null",
            "",
            "file://localhost:4676",
        ] {
            assert_eq!(from(origin), Err(format!("a page of {origin:?} may not ask this server")));
        }
        let both = [
            (header::HOST, "localhost"),
            (header::ORIGIN, "http://localhost"),
            (header::ORIGIN, "https://evil.example"),
        ];
        assert!(check(&both).is_err());
    }
}
