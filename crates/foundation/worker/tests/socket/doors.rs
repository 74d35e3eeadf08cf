//! Who is let in.

use formwork_worker::{Error, FromWorker, ToWorker};

use crate::world::{NARROW, OTHERS, TOKEN, Tools, World, hello};

#[tokio::test]
async fn behaviour_39_a_worker_with_a_wrong_token_is_told_so_and_does_not_come_again() {
    let world = World::new().await;
    let (tools, _) = Tools::new("a");

    let wrong = world.worker_with("a", tools.clone(), 1, "tok-guessed").done.await.unwrap();
    let narrow = world.worker_with("a", tools, 1, NARROW).done.await.unwrap();

    let told = |ended: Result<(), Error>| ended.unwrap_err().to_string();
    let (wrong, narrow) = (told(wrong), told(narrow));
    assert!(wrong.ends_with("does not take this worker: it does not know the token"), "{wrong}");
    assert!(narrow.ends_with("the token is not good for scope worker"), "{narrow}");
    assert!(!wrong.contains("tok-guessed"));
    assert_eq!(world.hub.workers(), []);
}

#[tokio::test]
async fn behaviour_39_ends_that_share_no_version_do_not_speak() {
    let world = World::new().await;

    assert_eq!(world.knock(TOKEN, "formwork.worker.v2").await.err(), Some(400));
    assert_eq!(world.knock("", "formwork.worker.v1").await.err(), Some(401));
    assert_eq!(world.knock(NARROW, "formwork.worker.v1").await.err(), Some(403));
}

#[tokio::test]
async fn behaviour_39_a_name_is_not_taken_from_another_principal() {
    let world = World::new().await;
    let _there = world.by_hand("a", "one").await;

    let mut other = world.hand(OTHERS).await;
    other.say(&FromWorker::Hello(hello("a", "one"))).await;

    let ToWorker::Refused { reason, again } = other.hear().await else { panic!("was taken") };
    assert_eq!((reason.as_str(), again), ("the name a is another's: choose another one", false));
    assert_eq!(world.hub.workers()[0].principal.as_str(), "service:ada");
}

#[tokio::test]
async fn behaviour_39_what_is_no_introduction_ends_the_connection() {
    let world = World::new().await;
    let long = "x".repeat(2 << 20);
    let hello_of = |change: fn(&mut formwork_worker::Hello)| {
        let mut hello = hello("a", "one");
        change(&mut hello);
        formwork_worker::encode(&FromWorker::Hello(hello))
    };

    for frame in [
        "[]".to_owned(),
        "{".to_owned(),
        r#"{"type":"beat"}"#.to_owned(),
        long,
        hello_of(|it| it.slots = 0),
        hello_of(|it| it.slots = 1_000_000),
        hello_of(|it| it.labels.clear()),
        hello_of(|it| it.instance = "i".repeat(65)),
    ] {
        let mut hand = world.hand(TOKEN).await;
        hand.send(frame).await;
        assert!(matches!(hand.next().await, None | Some(ToWorker::Refused { again: false, .. })));
    }
    let mut hand = world.hand(TOKEN).await;
    hand.bytes(vec![0xff; 64]).await;
    assert!(matches!(hand.next().await, None | Some(ToWorker::Refused { .. })));

    assert_eq!(world.hub.workers(), []);
}
