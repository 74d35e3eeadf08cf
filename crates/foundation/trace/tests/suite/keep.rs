//! Operations on the log as a whole: out and in, archived, pruned, compared, signed.

use std::path::Path;

use formwork_protocols::NoSecrets;
use formwork_trace::{BundleError, Counts, Fate, Form, SigningKey, digest};

use super::*;

/// A run with blobs of every kind, that ends where it is told to.
async fn lived(trace: &Trace, run: RunId, ends: bool) -> Vec<Blob> {
    let Story { mut events, .. } = story(run);
    if !ends {
        events.truncate(events.len() - 1);
    }
    let text = Blob::new(format!("the text of {run}, again and again\n").repeat(300).into_bytes());
    let little = Blob::new(b"ok".to_vec());
    let bytes = Blob::new([0, 159, 146, 150].to_vec());
    let message = |index, blob: &Blob| {
        event(EventBody::SessionMessage(SessionMessage {
            session: SessionId::from_uuid(uuid::Uuid::nil()),
            index,
            role: Role::User,
            message: blob.hash(),
            attached: Vec::new(),
        }))
    };
    events.splice(
        3..3,
        [message(0, &text), message(1, &little), message(2, &bytes), message(3, &little)],
    );
    events.insert(3, note("test.number", json!({ "third": 1.0 / 3.0, "tiny": 5e-324, "é": "✓" })));
    let blobs = vec![text, little, bytes];
    trace.append(Append { blobs: blobs.clone(), ..of(run, events) }).await.unwrap();
    blobs
}

async fn exported(trace: &Trace, run: RunId, form: Form, folder: &Path) -> std::path::PathBuf {
    let path = folder.join(format!("{run}.jsonl"));
    let file = std::fs::File::create(&path).unwrap();
    trace.export(run, file, form, &NoSecrets).await.unwrap();
    path
}

async fn of_run(trace: &Trace, run: RunId) -> Vec<Event> {
    let selection = Selection { run: Some(run), ..Selection::default() };
    trace.read(Position(0), &selection, usize::MAX).await.unwrap()
}

async fn assert_sound(trace: &Trace) {
    let audit = trace.audit_store(vec![]).await.unwrap();
    assert!(audit.unguarded.is_empty(), "{:?}", audit.unguarded);
    for audit in &audit.audits {
        assert_eq!(audit.faults, [], "{}", audit.run);
    }
    assert_eq!(audit.missing, 0);
    for compared in &audit.checkpoints {
        assert_eq!(compared.fault, None, "{compared:?}");
    }
    assert_eq!(trace.compare_views().await.unwrap(), []);
}

pub(crate) async fn a_run_goes_out_and_comes_in_whole(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (from, run) = (place.open().await, run_at(1));
    let blobs = lived(&from, run, true).await;
    let (events, views) = (of_run(&from, run).await, from.views_digest().await.unwrap());

    for form in [Form::Plain, Form::Compressed] {
        let file = exported(&from, run, form, folder.path()).await;
        // Into the other engine as well as into the same.
        for other in [Some(Place::sqlite()), Place::postgres()].into_iter().flatten() {
            let to = other.open().await;
            let done = to.import(&file).await.unwrap();

            assert_eq!(done, [(run, Fate::Imported)]);
            assert_eq!(of_run(&to, run).await, events);
            assert_eq!(to.views_digest().await.unwrap(), views);
            for blob in &blobs {
                assert_eq!(to.blob(&blob.hash()).await.unwrap().as_deref(), Some(blob.bytes()));
            }
            assert_sound(&to).await;
            assert_eq!(to.import(&file).await.unwrap(), [(run, Fate::Identical)]);
            to.close().await;
        }
    }
    from.close().await;
}

pub(crate) async fn what_comes_in_is_seen_by_those_who_watch(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (place.open().await, Place::sqlite());
    let (run, after) = (run_at(1), run_at(2));
    lived(&from, run, true).await;
    let file = exported(&from, run, Form::Plain, folder.path()).await;
    let to = to.open().await;
    let mut watch = to.watch();

    to.import(&file).await.unwrap();
    to.append(of(after, vec![note("test.after", json!({}))])).await.unwrap();

    let mut seen = Vec::new();
    while let Some(live) = watch.next().await {
        let Live::Event(event) = live else { panic!("{live:?}") };
        seen.push(event.position.0);
        if event.run == after {
            break;
        }
    }
    assert_eq!(seen, (1..=to.head().await.unwrap().0).collect::<Vec<_>>());
    from.close().await;
    to.close().await;
}

pub(crate) async fn a_run_that_is_here_and_is_another_is_refused(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (place.open().await, run_at(1));
    lived(&trace, run, false).await;
    let file = exported(&trace, run, Form::Compressed, folder.path()).await;
    trace.append(of(run, vec![note("test.later", json!({}))])).await.unwrap();
    let before = all(&trace).await;

    let refused = trace.import(&file).await.unwrap_err();

    let (here, there) = (before.len(), before.len() - 1);
    assert_eq!(
        refused.to_string(),
        format!(
            "run {run} is here already and is another: {here} events here, {there} in the bundle"
        )
    );
    assert_eq!(all(&trace).await, before);
    trace.close().await;
}

/// Spoils one line of a bundle.
type Spoil = fn(&mut Vec<String>);

pub(crate) async fn a_forged_bundle_is_refused_with_what_is_wrong(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (place.open().await, run_at(1));
    lived(&trace, run, true).await;
    let file = exported(&trace, run, Form::Plain, folder.path()).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let empty = Place::sqlite();
    let to = empty.open().await;

    fn first(lines: &[String], what: &str) -> usize {
        lines.iter().position(|line| line.starts_with(&format!("{{\"{what}\""))).unwrap()
    }
    let spoiled: [(Spoil, &str); 14] = [
        (|lines| lines.clear(), "the file is empty"),
        (|lines| lines[0] = "hello".to_owned(), "the file is no bundle of runs"),
        (
            |lines| lines[0] = lines[0].replace("\"format\":2", "\"format\":3"),
            "the bundle has format 3, this program knows up to 2",
        ),
        (|lines| drop(lines.pop()), "its end is missing"),
        (
            |lines| {
                let at = first(lines, "event");
                lines[at] = lines[at].replace("user:ada", "user:eve");
            },
            "event 1 of run RUN is not what was written",
        ),
        (
            |lines| {
                let at = first(lines, "event");
                lines[at] = lines[at].replace("fix-it", "fix-at");
            },
            "event 1 of run RUN is not what was written",
        ),
        (
            |lines| {
                let at = first(lines, "event");
                lines.remove(at);
            },
            "after event 0 of run RUN comes 2",
        ),
        (
            |lines| {
                let at = first(lines, "event");
                lines.swap(at, at + 1);
            },
            "after event 0 of run RUN comes 2",
        ),
        (
            |lines| {
                let last = lines.len() - 2;
                lines.remove(last);
            },
            "events here and should have",
        ),
        (
            |lines| {
                let at = first(lines, "run");
                let end = lines[at].find("\"head\"").unwrap() + 8;
                lines[at].replace_range(end..end + 4, "0000");
            },
            "does not end with 0000",
        ),
        (
            |lines| {
                let at = first(lines, "blob");
                lines[at] = lines[at].replace("again", "never");
            },
            "are not those of its hash",
        ),
        (
            |lines| {
                let at = first(lines, "blob");
                lines.remove(at);
            },
            "which is not in the bundle",
        ),
        (
            |lines| {
                let at = first(lines, "run");
                let again = lines[at..lines.len() - 1].to_vec();
                let end = lines.len() - 1;
                lines.splice(end..end, again);
            },
            "is there twice",
        ),
        (
            |lines| {
                let at = lines.len() - 1;
                lines[at] = lines[at].replace("\"runs\":1", "\"runs\":2");
            },
            "it counts 2 runs",
        ),
    ];
    for (spoil, told) in spoiled {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        spoil(&mut lines);
        let forged = folder.path().join("forged");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&forged, text).unwrap();

        let refused = to.import(&forged).await.unwrap_err().to_string();

        let told = told.replace("RUN", &run.to_string());
        assert!(refused.contains(&told), "{refused}\n{told}");
    }
    assert_eq!(to.head().await.unwrap(), Position(0));
    trace.close().await;
    to.close().await;
}

pub(crate) async fn a_bundle_that_was_cut_or_altered_in_its_compressed_form_is_refused(
    place: &Place,
) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (place.open().await, run_at(1));
    lived(&trace, run, true).await;
    let file = exported(&trace, run, Form::Compressed, folder.path()).await;
    let bytes = std::fs::read(&file).unwrap();
    let other = Place::sqlite();
    let to = other.open().await;

    for at in [5, bytes.len() / 2, bytes.len() - 2] {
        let cut = bytes[..at].to_vec();
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        // How large a window the first bytes ask for changes nothing of what is in it.
        for forged in [Some(cut), (at > 5).then_some(flipped)].into_iter().flatten() {
            std::fs::write(&file, &forged).unwrap();
            let refused = to.import(&file).await.unwrap_err();
            assert!(matches!(refused, BundleError::Forged { .. }), "{at}: {refused:?}");
        }
    }
    assert_eq!(to.head().await.unwrap(), Position(0));
    to.close().await;
    trace.close().await;
}

pub(crate) async fn a_run_that_is_not_sound_or_holds_a_secret_does_not_leave(place: &Place) {
    let (trace, run, spoiled) = (place.open().await, run_at(1), run_at(2));
    let blobs = lived(&trace, run, true).await;
    lived(&trace, spoiled, true).await;
    let id = bytes(place, spoiled);
    place.tamper(&format!("UPDATE events SET at = at + 1 WHERE run = {id} AND seq = 3")).await;

    let told = async |run, scrub: &dyn Scrub| {
        trace.export(run, std::io::sink(), Form::Plain, scrub).await.unwrap_err().to_string()
    };

    assert_eq!(
        told(spoiled, &NoSecrets).await,
        format!("run {spoiled} cannot be taken out: event 3 is not what was written there")
    );
    assert_eq!(
        told(run, &Hide("every check passed")).await,
        format!(
            "run {run} cannot be taken out: event 25 holds what is known to be a secret by now"
        )
    );
    let hash = blobs[0].hash();
    assert_eq!(
        told(run, &Hide("again and again")).await,
        format!(
            "run {run} cannot be taken out: blob {hash} holds what is known to be a secret by now"
        )
    );
    let none = run_at(3);
    assert_eq!(told(none, &NoSecrets).await, format!("there is no run {none}"));
    trace.close().await;
}

pub(crate) async fn a_run_with_a_blob_that_no_line_holds_leaves_and_comes_back(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (place.open().await, run_at(1));
    let large = Blob::new(vec![7; 26 * 1024 * 1024]);
    let (hash, mut events) = (large.hash(), story(run).events);
    events.insert(3, note("test.large", json!({ "output": hash.to_string() })));
    trace.append(Append { blobs: vec![large.clone()], ..of(run, events) }).await.unwrap();
    trace.append(of(run_at(2), vec![note("test.last", json!({}))])).await.unwrap();
    let now = Timestamp::from_micros(9_000_000);

    let left = trace.archive(now, now, folder.path(), &NoSecrets).await.unwrap();
    let pruned = trace.prune(now).await.unwrap().unwrap();
    let gone = trace.blob(&hash).await.unwrap();
    let back = trace.import(&left.file.unwrap()).await.unwrap();

    assert_eq!((left.runs, left.counts.blobs, pruned.blobs), (vec![run], 1, 1));
    assert!(gone.is_none());
    assert_eq!(back, [(run, Fate::Restored)]);
    assert!(trace.blob(&hash).await.unwrap().as_deref() == Some(large.bytes()));
    assert_sound(&trace).await;
    trace.close().await;
}

/// Tells whether something that takes several transactions lets others write between them: what is asked of the writer is done in the
/// order in which it was asked, so one that is asked after the first of them is done before the last.
async fn lets_others_write<T>(trace: &Trace, long: impl Future<Output = T>) -> (bool, T) {
    let run = run_at(1_000_000);
    let mut short = Box::pin(trace.append(of(run, vec![note("test.between", json!({}))])));
    let mut long = Box::pin(long);
    let mut is_between = false;
    loop {
        tokio::select! {
            biased; // It is asked first.
            done = &mut long => {
                if !is_between {
                    short.await.unwrap();
                }
                return (is_between, done);
            }
            recorded = &mut short, if !is_between => {
                recorded.unwrap();
                is_between = true;
            }
        }
    }
}

pub(crate) async fn others_write_while_the_log_is_kept(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let trace = place.open().await;
    for n in 1..4 {
        lived(&trace, run_at(n), true).await;
    }
    let run = run_at(9);
    let large = |n: u8| Blob::new([n; 32].repeat(200_000));
    let blobs: Vec<Blob> = (0..3).map(large).collect();
    let named: Vec<String> = blobs.iter().map(|blob| blob.hash().to_string()).collect();
    let mut events = story(run).events;
    events.insert(3, note("test.large", json!({ "output": named })));
    events.splice(4..4, (0..1_200).map(|n| note("test.many", json!({ "n": n }))));
    trace.append(Append { blobs, ..of(run, events) }).await.unwrap();
    let file = exported(&trace, run, Form::Compressed, folder.path()).await;
    let orphans = (0..1_100_u32).map(|n| Blob::new(n.to_be_bytes().to_vec())).collect();
    trace.append(Append { blobs: orphans, ..of(run_at(2), vec![]) }).await.unwrap();
    let (now, other) = (Timestamp::from_micros(9_000_000), Place::sqlite());
    let to = other.open().await;

    let (rebuilds, done) = lets_others_write(&trace, trace.rebuild()).await;
    done.unwrap();
    let (prunes, pruned) = lets_others_write(&trace, trace.prune(now)).await;
    let (imports, imported) = lets_others_write(&to, to.import(&file)).await;

    assert_eq!(pruned.unwrap().unwrap().blobs, 1_100);
    assert_eq!(imported.unwrap(), [(run, Fate::Imported)]);
    assert_eq!(of_run(&to, run).await.len(), of_run(&trace, run).await.len());
    assert_eq!([rebuilds, prunes, imports], [true; 3]);
    for trace in [trace, to] {
        assert_sound(&trace).await;
        trace.close().await;
    }
}

pub(crate) async fn ended_runs_leave_into_an_archive_and_come_back(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let trace = place.open().await;
    let (old, new, running, last) = (run_at(1), run_at(2), run_at(3), run_at(4));
    let blobs = lived(&trace, old, true).await;
    lived(&trace, running, false).await;
    let mut late = story(new).events;
    for event in &mut late {
        event.at = Timestamp::from_micros(5_000_000);
    }
    trace.append(of(new, late)).await.unwrap();
    lived(&trace, last, true).await;
    let key = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
    trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();
    let (before, events) = (of_run(&trace, old).await, all(&trace).await.len());

    let limit = Timestamp::from_micros(1_000_000);
    let now = Timestamp::from_micros(9_000_000);
    let left = trace.archive(limit, now, folder.path(), &NoSecrets).await.unwrap();
    let pruned = trace.prune(now).await.unwrap().unwrap();

    // The last run stays, because the position of its last event must not be given out again.
    assert_eq!((left.runs, left.stayed), (vec![old], vec![]));
    let counted = Counts { runs: 1, events: before.len() as u64, blobs: 3 };
    assert_eq!(left.counts, counted);
    let file = left.file.unwrap();
    assert_eq!(digest(&file).unwrap().1, left.bytes);
    assert_eq!(trace.run(old).await.unwrap(), None);
    assert_eq!(trace.tasks(old).await.unwrap(), []);
    assert_eq!(of_run(&trace, old).await, []);
    assert_eq!(all(&trace).await.len(), events - before.len());
    assert_eq!(pruned.blobs, 1, "the other two are named by others");
    assert_eq!(trace.blob(&blobs[0].hash()).await.unwrap(), None);
    let audit = trace.audit_store(vec![]).await.unwrap();
    assert_eq!(audit.archived.iter().map(|gone| gone.run).collect::<Vec<_>>(), [old]);
    assert_eq!(audit.archived[0].digest, digest(&file).unwrap().0);
    assert_eq!(trace.audit(old).await.unwrap().events, 0);
    assert_sound(&trace).await;
    assert!(trace.export(old, std::io::sink(), Form::Plain, &NoSecrets).await.is_err());

    // While it is away, the log goes on; then it comes back to where it was.
    trace.append(of(running, vec![note("test.meanwhile", json!({}))])).await.unwrap();
    trace.checkpoint(&key, Timestamp::from_micros(2)).await.unwrap();
    assert_eq!(trace.import(&file).await.unwrap(), [(old, Fate::Restored)]);
    assert_eq!(trace.import(&file).await.unwrap(), [(old, Fate::Identical)]);
    // It is this machine's own, as it was before it left.
    assert!(!trace.is_imported(old).await.unwrap());
    let after = of_run(&trace, old).await;
    let hashes = |events: &[Event]| events.iter().map(|event| event.hash).collect::<Vec<_>>();
    assert_eq!(hashes(&after), hashes(&before));
    assert_eq!(trace.blob(&blobs[0].hash()).await.unwrap().as_deref(), Some(blobs[0].bytes()));
    let audit = trace.audit_store(vec![]).await.unwrap();
    assert_eq!((audit.checkpoints.len(), audit.archived.len()), (2, 0));
    assert_sound(&trace).await;

    // It can leave again, and come back from either file.
    trace.append(of(running, vec![note("test.last", json!({}))])).await.unwrap();
    let again = trace.archive(limit, now, folder.path(), &NoSecrets).await.unwrap();
    assert!(again.runs.contains(&old), "{again:?}");
    assert_eq!(trace.import(&file).await.unwrap(), [(old, Fate::Restored)]);
    assert_eq!(hashes(&of_run(&trace, old).await), hashes(&before));
    assert_sound(&trace).await;
    trace.close().await;
}

pub(crate) async fn a_checkpoint_in_the_middle_of_an_archived_run_still_holds(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, run) = (place.open().await, run_at(1));
    let key = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
    let events = story(run).events;
    for (n, event) in events.into_iter().enumerate() {
        trace.append(of(run, vec![event])).await.unwrap();
        if n % 4 == 1 {
            trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();
        }
        trace.append(of(run_at(2), vec![note("test.beside", json!({}))])).await.unwrap();
    }

    let now = Timestamp::from_micros(9_000_000);
    let left = trace.archive(now, now, folder.path(), &NoSecrets).await.unwrap();

    assert_eq!(left.runs, [run]);
    assert_eq!(trace.audit_store(vec![]).await.unwrap().checkpoints.len(), 5);
    assert_sound(&trace).await;
    trace.close().await;
}

pub(crate) async fn nothing_leaves_or_is_pruned_that_somebody_works_on(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let hands = Arc::new(Hands::default());
    let options = by_hand(Arc::clone(&hands) as _);
    let trace = Trace::open(&place.url(), options).await.unwrap();
    let (held, last) = (run_at(1), run_at(2));
    lived(&trace, held, true).await;
    lived(&trace, last, true).await;
    let orphan = Blob::new(b"written before the event that names it".to_vec());
    trace.append(Append { blobs: vec![orphan.clone()], ..of(held, vec![]) }).await.unwrap();
    let lease = trace.acquire(held, "me", Span::from_secs(30)).await.unwrap();
    let late = Timestamp::from_micros(1_000_000);

    let left = trace.archive(late, hands.now(), folder.path(), &NoSecrets).await.unwrap();
    let pruned = trace.prune(hands.now()).await.unwrap();

    assert_eq!((left.file, left.runs, pruned), (None, vec![], None));
    assert_eq!(trace.orphans().await.unwrap().blobs, 1);
    assert_eq!(trace.blob(&orphan.hash()).await.unwrap().as_deref(), Some(orphan.bytes()));
    trace.release(&lease).await.unwrap();
    let left = trace.archive(late, hands.now(), folder.path(), &NoSecrets).await.unwrap();
    assert_eq!(left.runs, [held]);
    // One that is named by the run that stays is kept.
    assert_eq!(trace.prune(hands.now()).await.unwrap().unwrap().blobs, 2);
    assert_eq!(trace.orphans().await.unwrap().blobs, 0);
    assert_sound(&trace).await;
    trace.close().await;
}
