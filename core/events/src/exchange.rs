use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use core_types::{Error, Filter, Namespace, Result, ResultExt, identifiers};
use tracing::trace;

use crate::{
    Envelope, Event, Publisher, Subscription,
    subscription::{Limits, Mailbox},
};

/// Hands every event to every subscriber whose filters accept it. A clone is the same exchange.
///
/// Publishing never waits: a slow subscriber has a queue with a limit, beyond which its oldest events are
/// dropped and counted. All subscribers see events in the same order, which is that of publication.
#[derive(Clone, Default)]
pub struct Exchange(Arc<Shared>);

#[derive(Default)]
struct Shared {
    subscribers: Mutex<Vec<Arc<Mailbox>>>,
}

/// Checks a topic: `/` and at least one component, each an identifier.
///
/// # Errors
/// InvalidArgument that names the part that is wrong.
pub fn validate_topic(topic: &str) -> Result<()> {
    let wrong = |why: &str| Err(Error::invalid_argument(format!("envelope topic {topic:?}: {why}")));
    if topic.is_empty() {
        return wrong("must not be empty");
    }
    let Some(components) = topic.strip_prefix('/') else { return wrong("must start with '/'") };
    if components.is_empty() {
        return wrong("must have at least one component");
    }
    components.split('/').try_for_each(identifiers::validate).doing(format_args!("envelope topic {topic:?}"))
}

impl Exchange {
    /// An exchange without subscribers.
    pub fn new() -> Self {
        Self::default()
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.0.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, envelope: Envelope) {
        trace!(topic = envelope.topic, namespace = %envelope.namespace, "event");
        let mut subscribers = self.subscribers();
        if subscribers.is_empty() {
            return;
        }
        let envelope = Arc::new(envelope);
        subscribers.retain(|mailbox| !mailbox.is_closed());
        for mailbox in subscribers.iter() {
            mailbox.put(&envelope);
        }
    }

    /// Publishes an event of another publisher as it is, with its time and namespace.
    ///
    /// # Errors
    /// InvalidArgument for a malformed topic or a time that was never set.
    pub fn forward(&self, envelope: Envelope) -> Result<()> {
        validate_topic(&envelope.topic)?;
        if envelope.timestamp == SystemTime::UNIX_EPOCH {
            return Err(Error::invalid_argument("timestamp must be set on forwarded event"));
        }
        self.send(envelope);
        Ok(())
    }

    /// Subscribes to the events that any of the filters accepts, from now on; to all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a filter that does not parse.
    pub fn subscribe(&self, filters: &[String]) -> Result<Subscription> {
        self.subscribe_with(filters, Limits::default())
    }

    /// Subscribes with other than the usual limits.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn subscribe_with(&self, filters: &[String], limits: Limits) -> Result<Subscription> {
        let filter = Filter::parse_all(filters).doing("failed parsing subscription filters")?;
        let mailbox = Arc::new(Mailbox::new(filter, limits));
        let mut subscribers = self.subscribers();
        subscribers.retain(|mailbox| !mailbox.is_closed());
        subscribers.push(Arc::clone(&mailbox));
        Ok(Subscription(mailbox))
    }
}

impl Publisher for Exchange {
    fn publish(&self, namespace: &Namespace, topic: &str, event: Event) -> Result<()> {
        validate_topic(topic)?;
        self.send(Envelope {
            timestamp: SystemTime::now(),
            namespace: namespace.clone(),
            topic: topic.to_owned(),
            event,
        });
        Ok(())
    }
}

impl Drop for Shared {
    /// Subscribers take what is left, then see the end.
    fn drop(&mut self) {
        let subscribers = self.subscribers.get_mut().unwrap_or_else(PoisonError::into_inner);
        subscribers.iter().for_each(|mailbox| mailbox.close());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use core_types::ErrorKind;

    use super::*;
    use crate::Any;

    fn namespace(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    fn image(name: &str) -> Event {
        Event::ImageDelete { name: name.into() }
    }

    async fn next(subscription: &mut Subscription) -> Option<Envelope> {
        tokio::time::timeout(Duration::from_secs(30), subscription.next()).await.unwrap()
    }

    #[test]
    fn topics_are_checked() {
        for topic in ["/a", "/images/delete", "/tasks/exec-added"] {
            validate_topic(topic).unwrap();
        }
        for topic in ["", "/", "a", "a/b", "/a//b", "/a/", "/a/../b", "/a b"] {
            assert_eq!(validate_topic(topic).unwrap_err().kind(), ErrorKind::InvalidArgument, "{topic}");
        }
    }

    #[tokio::test]
    async fn subscribers_get_what_their_filters_accept() {
        let exchange = Exchange::new();
        let mut all = exchange.subscribe(&[]).unwrap();
        let filter = [r#"topic~="^/images/.*",namespace==one"#.to_owned(), "event.name==special".to_owned()];
        let mut some = exchange.subscribe(&filter).unwrap();
        let one = namespace("one");
        let two = namespace("two");
        exchange.publish(&two, "/images/delete", image("no")).unwrap();
        exchange.publish(&one, "/images/delete", image("yes")).unwrap();
        exchange.publish(&two, "/images/delete", image("special")).unwrap();
        assert!(exchange.publish(&one, "images", image("bad topic")).is_err());
        drop(exchange);
        for name in ["no", "yes", "special"] {
            assert_eq!(next(&mut all).await.unwrap().event, image(name));
        }
        assert_eq!(next(&mut all).await, None);
        for name in ["yes", "special"] {
            assert_eq!(next(&mut some).await.unwrap().event, image(name));
        }
        assert_eq!(next(&mut some).await, None);
    }

    #[tokio::test]
    async fn forwarded_events_keep_their_time_and_can_be_filtered_by_container() {
        let exchange = Exchange::new();
        let mut exits = exchange.subscribe(&["event.container_id==web".into()]).unwrap();
        let envelope = |id: &str| {
            let mut value = vec![0x0a, u8::try_from(id.len()).unwrap()];
            value.extend_from_slice(id.as_bytes());
            Envelope {
                timestamp: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
                namespace: namespace("default"),
                topic: "/tasks/exit".into(),
                event: Event::Encoded(Any { type_url: "containerd.events.TaskExit".into(), value: value.into() }),
            }
        };
        exchange.forward(envelope("db")).unwrap();
        exchange.forward(envelope("web")).unwrap();
        assert_eq!(next(&mut exits).await.unwrap(), envelope("web"));
        let unset = Envelope { timestamp: SystemTime::UNIX_EPOCH, ..envelope("web") };
        assert_eq!(exchange.forward(unset).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[tokio::test]
    async fn a_slow_subscriber_loses_the_oldest_and_knows_how_many() {
        let exchange = Exchange::new();
        let limits = Limits { queue: 2, spill: 3, bytes: usize::MAX };
        let mut slow = exchange.subscribe_with(&[], limits).unwrap();
        let mut quick = exchange.subscribe(&[]).unwrap();
        for number in 0..20 {
            exchange.publish(&namespace("n"), "/t", image(&number.to_string())).unwrap();
        }
        assert_eq!((slow.dropped(), slow.waiting()), (15, 5));
        for number in 15..20 {
            assert_eq!(next(&mut slow).await.unwrap().event, image(&number.to_string()));
        }
        assert_eq!(quick.dropped(), 0);
        for number in 0..20 {
            assert_eq!(next(&mut quick).await.unwrap().event, image(&number.to_string()));
        }
    }

    #[tokio::test]
    async fn large_events_are_bounded_by_bytes() {
        let exchange = Exchange::new();
        let slow = exchange.subscribe_with(&[], Limits { bytes: 100_000, ..Limits::default() }).unwrap();
        for _ in 0..10 {
            let event = Event::Encoded(Any { type_url: "x".into(), value: vec![0; 40_000].into() });
            exchange.publish(&namespace("n"), "/t", event).unwrap();
        }
        assert_eq!((slow.waiting(), slow.dropped()), (2, 8));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_order_of_each_publisher_is_kept() {
        let exchange = Exchange::new();
        let mut subscription = exchange.subscribe(&[]).unwrap();
        let mut publishers = Vec::new();
        for publisher in ["a", "b", "c"] {
            let exchange = exchange.clone();
            publishers.push(tokio::task::spawn_blocking(move || {
                for number in 0..500 {
                    exchange.publish(&namespace(publisher), "/t", image(&number.to_string())).unwrap();
                }
            }));
        }
        let mut seen = std::collections::HashMap::<String, usize>::new();
        for _ in 0..1500 {
            let envelope = next(&mut subscription).await.unwrap();
            let count = seen.entry(envelope.namespace.to_string()).or_default();
            assert_eq!(envelope.event, image(&count.to_string()));
            *count += 1;
        }
        for publisher in publishers {
            publisher.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_dropped_subscription_is_forgotten() {
        let exchange = Exchange::new();
        drop(exchange.subscribe(&[]).unwrap());
        exchange.publish(&namespace("n"), "/t", image("x")).unwrap();
        assert!(exchange.subscribers().is_empty());
        assert!(exchange.subscribe(&["topic==".into()]).is_err());
    }
}
