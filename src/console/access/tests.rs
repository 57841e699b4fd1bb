use axum::http::HeaderName;

use super::*;

pub(super) fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

#[test]
fn a_one_time_address_works_once() {
    let access = Access::new(80, false);
    let token = access.offer(None);
    assert!(matches!(access.enter(&token, None), EntryResult::In(_)));
    assert_eq!(access.enter(&token, None), EntryResult::Used);
    assert_eq!(access.enter("another", None), EntryResult::Unknown);
    assert_eq!(access.enter("", None), EntryResult::Unknown);
    let over = access.offer(Some(Instant::now()));
    assert_eq!(access.enter(&over, None), EntryResult::Unknown);
}

#[test]
fn a_browser_is_recognized_by_its_cookie_only() {
    let access = Access::new(80, false);
    let [first, second] = [(); 2].map(|()| match access.enter(&access.offer(None), None) {
        EntryResult::In(cookie) => cookie,
        other => panic!("{other:?}"),
    });
    let cookie = |value: &str| headers(&[("cookie", &format!("other=1; channeld-console-80={value}"))]);
    let visitor = access.visitor(&cookie(&first), None, false).unwrap();
    assert_eq!(visitor.number, 1);
    access.notify(&visitor, Ok("done".to_owned()));
    assert_eq!(access.visitor(&cookie(&second), None, true).unwrap().notice, None);
    assert_eq!(access.visitor(&cookie(&first), None, false).unwrap().notice, None, "no page was requested");
    assert_eq!(access.visitor(&cookie(&first), None, true).unwrap().notice, Some(Ok("done".to_owned())));
    assert_eq!(access.visitor(&cookie(&first), None, true).unwrap().notice, None);
    for wrong in ["", "x", &first[1..]] {
        assert!(access.visitor(&cookie(wrong), None, false).is_none(), "{wrong:?}");
    }
    assert!(access.visitor(&headers(&[("cookie", &format!("channeld-console-81={first}"))]), None, false).is_none());
    assert_ne!(access.visitor(&cookie(&second), None, false).unwrap().form_token, visitor.form_token);
}

#[test]
fn sessions_are_bounded_and_the_oldest_idle_one_is_dropped() {
    let access = Access::new(80, false);
    let cookies: Vec<_> = (0..=MOST_SESSIONS)
        .map(|_| {
            let EntryResult::In(cookie) = access.enter(&access.offer(None), None) else {
                panic!("the browser is not admitted")
            };
            cookie
        })
        .collect();
    let is_in =
        |cookie: &str| access.visitor(&headers(&[("cookie", &format!("channeld-console-80={cookie}"))]), None, false);
    assert!(is_in(&cookies[0]).is_none());
    assert!(is_in(&cookies[1]).is_some() && is_in(&cookies[MOST_SESSIONS]).is_some());
}

#[test]
fn a_cookie_is_useless_to_another_user() {
    let access = Access::new(80, false);
    let EntryResult::In(cookie) = access.enter(&access.offer(None), Some(1000)) else {
        panic!("the browser is not admitted")
    };
    let cookie = headers(&[("cookie", &format!("channeld-console-80={cookie}"))]);
    for thief in [Some(1001), Some(0), None] {
        assert!(access.visitor(&cookie, thief, false).is_none(), "{thief:?}");
    }
    assert!(access.visitor(&cookie, Some(1000), false).is_some(), "the session of the browser continues");
}
