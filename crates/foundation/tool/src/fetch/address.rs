//! Which addresses may be connected to: those of the world, and of one's own only where that was said.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Into the world.
    Public,
    /// To this machine, or into a network that is one's own.
    Private,
    /// Where no request has business, whatever is said: what clouds tell a machine about itself, broadcasts,
    /// addresses that mean none.
    Never,
}

/// Addresses at which clouds tell a machine its own keys, beside those of the link.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Tells where an address leads. One of IPv6 that carries one of IPv4 leads where that does.
///
/// Source: the registries of special-purpose addresses of IANA, RFC 6890 and its updates.
pub(crate) fn reach(address: IpAddr) -> Reach {
    if METADATA.contains(&address) {
        return Reach::Never;
    }
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        // "This network", which Linux takes for this machine; the link; groups; what is reserved; everybody.
        (0, ..) | (169, 254, _) | (224..=255, ..) => Reach::Never,
        (127 | 10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Reach::Private,
        // Protocol assignments, documentation, benchmarks, the old relays of 6to4.
        (192, 0, 0 | 2) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => {
            Reach::Never
        }
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let parts = address.segments();
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        reach(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
    };
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Reach::Never,
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private,
        // IPv4 within IPv6: mapped, compatible, translated, and by the prefixes of NAT64 and 6to4.
        [0, 0, 0, 0, 0 | 0xffff, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            carried(high, low)
        }
        [0x2002, high, low, ..] => carried(high, low),
        // NAT64 of one's own, Teredo, documentation, discard, benchmarks, ORCHID: nothing to be asked is there.
        [0x64, 0xff9b, ..]
        | [0x2001, 0..=0x01ff, ..]
        | [0x2001, 0xdb8, ..]
        | [0x100, 0, 0, 0, ..] => Reach::Never,
        [0x3fff, ..] => Reach::Never,
        [first, ..] => match first {
            0xfe80..=0xfebf | 0xff00..=0xffff => Reach::Never,
            0xfc00..=0xfdff | 0xfec0..=0xfeff => Reach::Private,
            // Only a part of the space was ever given out.
            0x2000..=0x3fff => Reach::Public,
            _ => Reach::Never,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(wanted: Reach, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(reach(address.parse().unwrap()), wanted, "{address}");
        }
    }

    #[test]
    fn addresses_of_the_world_are_public() {
        let public =
            ["1.1.1.1", "8.8.8.8", "172.32.0.1", "172.15.0.1", "192.169.0.1", "100.128.0.1"];
        reaches(Reach::Public, &public);
        reaches(Reach::Public, &["2606:4700::1111", "2a00:1450:4001::200e", "64:ff9b::808:808"]);
        reaches(Reach::Public, &["::ffff:8.8.8.8", "2002:0808:0808::1"]);
    }

    #[test]
    fn ones_own_addresses_are_private_in_every_disguise() {
        reaches(Reach::Private, &["127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1"]);
        reaches(
            Reach::Private,
            &["172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255"],
        );
        reaches(Reach::Private, &["::1", "fc00::1", "fdff::1", "fec0::1"]);
        reaches(Reach::Private, &["::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1"]);
        reaches(Reach::Private, &["64:ff9b::192.168.0.1", "2002:7f00:0001::"]);
    }

    #[test]
    fn nobody_asks_a_link_a_group_or_a_cloud_for_its_keys() {
        reaches(Reach::Never, &["0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1"]);
        reaches(Reach::Never, &["224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"]);
        reaches(Reach::Never, &["192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9"]);
        reaches(Reach::Never, &["100.100.100.200", "fd00:ec2::254", "::", "fe80::1", "ff02::1"]);
        reaches(
            Reach::Never,
            &["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::"],
        );
        reaches(Reach::Never, &["2001::1", "2001:db8::1", "100::1", "64:ff9b:1::1", "4000::1"]);
    }
}
