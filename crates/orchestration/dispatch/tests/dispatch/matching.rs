//! The index against the plain way: each subscription asked by itself.

use std::sync::Arc;

use formwork_dispatch::{Matcher, Occurrence, Subscription};
use formwork_protocols::{
    BlobHash, Event, EventBody, Position, Principal, Timestamp, WorkflowName,
};
use proptest::{prelude::*, sample::select};
use serde_json::json;

use crate::world::{run_id, subscription};

const KINDS: [&str; 7] =
    ["run.finished", "run.*", "*", "tool.*ed", "external.*", "*.failed", "task.completed"];
const PRINCIPALS: [&str; 4] = ["user:ada", "user:*", "agent:coder", "*"];
const WHEN: [&str; 4] = ["", "data.n > 3", "kind.startsWith('run')", "data.missing == 1"];

prop_compose! {
    fn subscriptions()(
        kinds in prop::collection::vec(select(&KINDS[..]), 1..3),
        principals in prop::collection::vec(select(&PRINCIPALS[..]), 0..3),
        run in prop::option::of(1_u32..3),
        workflow in prop::option::of(select(&["flow", "mend"][..])),
        source in prop::option::of(select(&["forge", "shop"][..])),
        when in select(&WHEN[..]),
    ) -> Subscription {
        let quoted = |list: &[&str]| format!("{list:?}");
        let mut text = format!(
            "name = \"s\"\n[filter]\nkinds = {}\nprincipals = {}\n",
            quoted(&kinds), quoted(&principals),
        );
        text.extend(run.map(|run| format!("run = \"{}\"\n", run_id(run))));
        text.extend(workflow.map(|name| format!("workflows = [\"{name}\"]\n")));
        text.extend(source.map(|name| format!("sources = [\"{name}\"]\n")));
        if !when.is_empty() {
            text.push_str(&format!("when = \"{when}\"\n"));
        }
        subscription(&format!("{text}[[actions]]\ncommand = [\"true\"]\n"))
    }
}

prop_compose! {
    fn events()(
        kind in select(&["run.weathered", "tool.tasted", "tool.x", "model.failed.not", "dispatch.x", "plain", "external.received"][..]),
        by in select(&["user:ada", "user:bob", "agent:coder", "system:x"][..]),
        run in 1_u32..3,
        n in 0_u32..6,
    ) -> Event {
        Event {
            position: Position(1),
            run: run_id(run),
            seq: 1,
            task: None,
            principal: Principal::parse(by).unwrap(),
            at: Timestamp::from_micros(0),
            body: EventBody::from_parts(
                kind,
                match kind {
                    "external.received" => {
                        json!({ "source": "forge", "name": "x", "delivery": "d", "data": { "n": n } })
                    }
                    _ => json!({ "n": n }),
                },
            )
            .unwrap(),
            idempotency_key: None,
            hash: BlobHash::of(b""),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaviour_36_the_index_finds_what_asking_each_subscription_finds(
        subscriptions in prop::collection::vec(subscriptions(), 0..12),
        events in prop::collection::vec(events(), 1..5),
    ) {
        let subscriptions: Vec<_> = subscriptions.into_iter().map(Arc::new).collect();
        let matcher = Matcher::new(subscriptions.iter().cloned());
        let workflow = WorkflowName::parse("flow").unwrap();
        for event in &events {
            let seen = Occurrence::new(event, &workflow);
            let asked = subscriptions.iter().enumerate().filter(|(_, it)| it.filter.matches(&seen));
            let wanted: Vec<usize> = asked.map(|(at, _)| at).collect();
            prop_assert_eq!(matcher.matching(&seen), wanted);
        }
    }
}
