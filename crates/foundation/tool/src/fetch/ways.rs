//! Where programs may connect to: decided by lists as requests are, with addresses judged by the same table.

use std::net::SocketAddr;

use formwork_policy::HostPatterns;
use formwork_protocols::{ToolError, ToolErrorKind};
use formwork_sandbox::NoRoute;

/// Where programs may connect to.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The lists that a host has to be on: those of the run, and of each agent in whose name a program runs.
    pub hosts: Vec<HostPatterns>,
    /// The hosts whose addresses may be those of this machine or of a private network.
    pub private: HostPatterns,
}

impl Ways {
    /// Returns the addresses at which a program may be connected to `to`, which is written as `host:port`. The name is
    /// resolved after it was decided on.
    ///
    /// # Errors
    /// [`NoRoute`] says why there is none.
    pub async fn addresses(&self, to: &str) -> Result<Vec<SocketAddr>, NoRoute> {
        let none = |error: ToolError| match error.kind {
            ToolErrorKind::Failed => NoRoute::Failed(error.message),
            _ => NoRoute::Refused(error.message),
        };
        // As an address of a page, so that what is another spelling of a host is that host.
        let url = super::parse(&format!("http://{to}/")).map_err(none)?;
        let host = super::authority(&url).unwrap_or_default();
        self.hosts.iter().try_for_each(|list| list.check(&host)).map_err(NoRoute::Refused)?;
        super::addresses(&self.private, "permissions.network", &url).await.map_err(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(lists: &[&[&str]], private: &[&str]) -> Ways {
        let parse = |list: &[&str]| HostPatterns::parse(list).unwrap();
        Ways { hosts: lists.iter().map(|list| parse(list)).collect(), private: parse(private) }
    }

    async fn refused(ways: &Ways, to: &str) -> String {
        match ways.addresses(to).await {
            Err(NoRoute::Refused(why)) => why,
            other => panic!("{to}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_host_has_to_be_on_every_list_however_it_is_spelt() {
        let ways = ways(&[&["*:*"], &["127.0.0.1:8080"]], &["127.0.0.1:*"]);

        for spelt in ["127.0.0.1:8080", "2130706433:8080", "0x7f.1:8080"] {
            let address = "127.0.0.1:8080".parse().unwrap();
            assert_eq!(ways.addresses(spelt).await, Ok(vec![address]), "{spelt}");
        }
        let why = refused(&ways, "127.0.0.1:8081").await;
        assert_eq!(why, "127.0.0.1:8081 is not on the list of hosts: 127.0.0.1:8080");
        refused(&ways, "docs.rs:8080").await;
    }

    #[tokio::test]
    async fn what_is_listed_is_judged_by_its_address_all_the_same() {
        let all = ways(&[&["*:*"]], &["10.0.0.1", "169.254.169.254", "100.100.100.200"]);

        let why = refused(&all, "127.0.0.1:80").await;
        assert!(why.contains("of this machine") && why.contains("[permissions.network]"), "{why}");
        for never in ["169.254.169.254:80", "[::ffff:169.254.169.254]:443", "100.100.100.200:80"] {
            let why = refused(&all, never).await;
            assert!(why.contains("an address that no request is sent to"), "{never}: {why}");
        }
        assert!(all.addresses("10.0.0.1:80").await.is_ok());
    }

    #[tokio::test]
    async fn what_is_no_host_with_a_port_is_refused() {
        let all = ways(&[&["*:*"]], &["*:*"]);

        for wrong in ["", ":80", "a b:80", "a:0", "user@localhost:80", "a:70000"] {
            assert!(all.addresses(wrong).await.is_err(), "{wrong}");
        }
    }
}
