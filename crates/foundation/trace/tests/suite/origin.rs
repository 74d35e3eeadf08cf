//! What came from elsewhere, and which store this is.

use std::{collections::BTreeSet, path::Path};

use formwork_protocols::{CredentialId, NoSecrets, SourceName, event::CredentialRevoked};
use formwork_trace::{BundleError, Form};

use super::*;

async fn exported(trace: &Trace, run: RunId, folder: &Path) -> std::path::PathBuf {
    let path = folder.join(format!("{run}.jsonl"));
    let file = std::fs::File::create(&path).unwrap();
    trace.export(run, file, Form::Plain, &NoSecrets).await.unwrap();
    path
}

pub(crate) async fn a_run_that_came_from_a_file_is_known_for_it(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (elsewhere, run, own) = (Place::sqlite(), run_at(1), run_at(2));
    let from = elsewhere.open().await;
    from.append(of(run, story(run).events)).await.unwrap();
    let file = exported(&from, run, folder.path()).await;
    let to = place.open().await;
    to.append(of(own, story(own).events)).await.unwrap();

    to.import(&file).await.unwrap();
    from.import(&file).await.unwrap();

    assert!(to.is_imported(run).await.unwrap() && !to.is_imported(own).await.unwrap());
    assert!(!from.is_imported(run).await.unwrap(), "what was here stays one's own");
    assert_eq!(to.imported(run..=own).await.unwrap(), BTreeSet::from([run]));
    assert_eq!(to.imported(own..=own).await.unwrap(), BTreeSet::new());
    to.close().await;
    let again = place.open().await;
    assert!(again.is_imported(run).await.unwrap());
    again.close().await;
    from.close().await;
}

pub(crate) async fn what_is_no_run_does_not_come_in(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = Place::sqlite();
    let (from, to) = (elsewhere.open().await, place.open().await);
    let whole = || story(run_at(1)).events;
    let created = |event: &NewEvent| matches!(event.body, EventBody::TaskCreated(_));
    let below = |parent: TaskId| {
        let mut events = whole();
        for event in &mut events {
            if let EventBody::TaskCreated(created) = &mut event.body {
                created.parent = Some(parent);
            }
        }
        events
    };
    let mut twice = whole();
    twice.push(twice[0].clone());
    let mut again = whole();
    again.push(again.iter().find(|event| created(event)).unwrap().clone());
    let mut lets_in = whole();
    let body = EventBody::CredentialRevoked(CredentialRevoked {
        credential: CredentialId::from_uuid(run_at(1).as_uuid()),
    });
    lets_in.push(NewEvent { task: None, body, ..lets_in[0].clone() });
    let spoiled = [
        (lets_in, "a run gives no credentials"),
        (whole().split_off(1), "a run begins with run.created"),
        (twice, "the run begins again"),
        (below(task_at(5)), "is below one that is not there"),
        (below(task_at(77)), "is below one that is not there"),
        (again, "is a second root"),
    ];
    for (n, (events, why)) in (10..).zip(spoiled) {
        let run = run_at(n);
        from.append(of(run, events)).await.unwrap();
        let file = exported(&from, run, folder.path()).await;

        let refused = to.import(&file).await.unwrap_err();

        assert!(matches!(refused, BundleError::Forged { .. }), "{refused:?}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let log = RunId::of_source("/work", &SourceName::parse("forge").unwrap());
    from.append(of(log, story(log).events)).await.unwrap();
    let file = exported(&from, log, folder.path()).await;
    let refused = to.import(&file).await.unwrap_err();

    assert!(refused.to_string().contains("a log of something else"), "{refused}");
    assert_eq!(all(&to).await, []);
    from.close().await;
    to.close().await;
}

pub(crate) async fn a_store_has_a_name_that_stays(place: &Place) {
    let elsewhere = Place::sqlite();
    let (one, other) = (place.open().await, elsewhere.open().await);
    let (name, another) = (one.identity().await.unwrap(), other.identity().await.unwrap());
    one.close().await;
    other.close().await;

    let again = place.open().await;

    assert_eq!(again.identity().await.unwrap(), name);
    assert_ne!(name, another);
    again.close().await;
}
