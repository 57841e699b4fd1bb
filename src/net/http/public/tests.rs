use super::*;

const PRIVATE: [&str; 44] = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "168.63.129.16",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
];

const PUBLIC: [&str; 12] = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
];

#[test]
fn private_addresses_are_recognized_in_every_form() {
    for (addresses, expected) in [(&PRIVATE[..], false), (&PUBLIC, true)] {
        for address in addresses {
            assert_eq!(check(address.parse().unwrap()).is_ok(), expected, "{address}");
        }
    }
}

#[test]
fn an_address_in_a_url_is_recognized_in_any_notation() {
    let hosts = ["127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "[::ffff:a00:1]", "169.254.169.254"];
    for host in hosts {
        let url = format!("http://{host}:8080/hook").parse().unwrap();
        assert!(check_public(&url).is_err(), "{host}");
    }
    assert!(check_public(&"https://93.184.216.34/".parse().unwrap()).is_ok());
}

#[tokio::test]
async fn a_name_for_a_private_address_is_refused() {
    let Err(error) = PublicOnly.resolve("localhost".parse().unwrap()).await else { panic!("it is resolved") };
    assert!(error.downcast_ref::<NotPublic>().is_some(), "{error}");
}
