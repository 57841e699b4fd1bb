use uuid::Uuid;

use super::*;
use proof::event::ChannelId;

#[tokio::test]
async fn a_trace_that_is_not_exported_has_an_id_of_32_digits_and_no_header() {
    let channel = ChannelRef { name: "a".into(), id: ChannelId(Uuid::nil()) };
    let [one, other] = [(), ()].map(|()| Traces::default().begin(&channel, SystemTime::now()));
    assert_eq!(one.id().to_string().len(), 32);
    assert_ne!(one.id(), other.id());
    let url = "http://127.0.0.1/hook".parse().expect("a URL");
    let request = async { RequestSpan::begin("POST", &url, || unreachable!("nothing is exported"), 0) };
    assert_eq!(one.part("deliver").around(request).await.traceparent(), None);
}
