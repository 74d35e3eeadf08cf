//! What the views show.

use super::*;

pub(crate) async fn a_run_says_where_more_files_changed_than_were_told(place: &Place) {
    let trace = place.open().await;
    let changed = |number: u64| {
        let change = json!({ "path": format!("f{number}\"untold\":"), "after": BlobHash::of(b"x"), "added": 1, "removed": 0 });
        event(EventBody::FileChanged(serde_json::from_value(change).unwrap()))
    };
    let ended = |untold: u64| {
        let taken = formwork_protocols::event::WorkspaceSnapshot { untold, ..<_>::default() };
        event(EventBody::WorkspaceSnapshot(taken))
    };
    let told = async |run: i64, files: u64, untold: u64| {
        let Story { run, mut events, .. } = story(run_at(run));
        events.truncate(1);
        events.extend((1..=files).map(changed));
        events.push(ended(untold));
        trace.append(of(run, events)).await.unwrap();
        let row = trace.run(run).await.unwrap().unwrap();
        let listed = trace.runs(None, 10).await.unwrap().into_iter().find(|row| row.run == run);
        assert_eq!(Some(&row), listed.as_ref());
        (row.files_changed, row.more_files)
    };

    assert_eq!(told(1, 1_000, 0).await, (1_000, false));
    assert_eq!(told(2, 1_000, 1).await, (1_000, true));
    assert_eq!(told(3, 2, 0).await, (2, false));
    trace.close().await;
}

pub(crate) async fn the_views_tell_the_story_of_a_run(place: &Place) {
    let trace = place.open().await;
    let story = story(run_at(1));
    let at = |n: i64| Timestamp::from_micros(n * 1_000);

    trace.append(of(story.run, story.events[..3].to_vec())).await.unwrap();
    assert_eq!(trace.run(story.run).await.unwrap().unwrap().state, RunState::Running);
    trace.append(of(story.run, story.events[3..].to_vec())).await.unwrap();

    let row = trace.run(story.run).await.unwrap().unwrap();
    let expected = formwork_protocols::store::RunRow {
        run: story.run,
        name: "fix-it".parse().unwrap(),
        state: RunState::Completed,
        workspace: "/home/ada/project".to_owned(),
        created: at(1),
        updated: at(20),
        code: Some(OutcomeCode::Completed),
        reason: Some(story.outcome.reason),
        rounds: 1,
        usage: story.usage,
        cost: story.cost,
        // A file that came and went is none.
        files_changed: 1,
        more_files: false,
        events: 20,
    };
    assert_eq!(row, expected);
    assert_eq!(trace.runs(None, 10).await.unwrap(), [expected]);
    let expected = formwork_protocols::store::TaskRow {
        task: story.task,
        run: story.run,
        parent: None,
        name: "fix".parse().unwrap(),
        body: "agent".to_owned(),
        state: TaskState::Completed,
        ending: Some(Ending::Completed),
        attempts: 2,
        cost: story.cost,
        usage: story.usage,
        started: Some(at(4)),
        ended: Some(at(19)),
    };
    assert_eq!(trace.tasks(story.run).await.unwrap(), [expected]);
    let attempt = |n: usize, started, ended: Option<i64>, reason: Option<&str>| {
        formwork_protocols::store::AttemptRow {
            attempt: story.attempts[n],
            task: story.task,
            number: u32::try_from(n).unwrap() + 1,
            started: at(started),
            ended: ended.map(at),
            reason: reason.map(str::to_owned),
        }
    };
    assert_eq!(
        trace.attempts(story.task).await.unwrap(),
        [attempt(0, 6, Some(11), Some("done")), attempt(1, 16, None, None)]
    );
    let check = |n: usize, seen| formwork_protocols::store::CheckRow {
        task: story.task,
        phase: Phase::Exit,
        index: 0,
        at: at(seen),
        verdict: story.verdicts[n].clone(),
    };
    assert_eq!(trace.checks(story.run).await.unwrap(), [check(0, 13), check(1, 18)]);
    let call = formwork_protocols::store::CallRow {
        call: story.call,
        task: story.task,
        session: story.session,
        model: "local/small".to_owned(),
        endpoint: "http://127.0.0.1:1".to_owned(),
        usage: story.usage,
        usage_estimated: true,
        cost: story.cost,
        tries: 2,
        elapsed: Span::from_millis(1_500),
        at: at(7),
    };
    assert_eq!(trace.calls(story.run).await.unwrap(), [call]);
    trace.close().await;
}

pub(crate) async fn the_views_are_the_same_when_made_anew(place: &Place) {
    let trace = place.open().await;
    for n in 0..5 {
        let story = story(run_at(n));
        // One event a batch, and all in one.
        let size = if n % 2 == 0 { 1 } else { story.events.len() };
        for batch in story.events.chunks(size) {
            trace.append(of(story.run, batch.to_vec())).await.unwrap();
        }
    }
    let before = place.views().await;
    assert_eq!(before["runs"].len(), 5);
    assert_eq!(before["calls"].len(), 5);

    let other = run_at(77).to_string();
    let strays = match place {
        Place::Sqlite(_) => format!("x'{}'", other.replace('-', "")),
        Place::Postgres(_) => format!("'{other}'::uuid"),
    };
    place
        .tamper(&format!(
            "UPDATE runs SET rounds = 77; DELETE FROM tasks WHERE ending IS NULL; DELETE FROM calls; \
             UPDATE tasks SET run = {strays}, input = 5; UPDATE checks SET run = {strays}; \
             UPDATE attempts SET number = 9; UPDATE files SET added = 77; \
             INSERT INTO runs SELECT {strays}, name, workspace, state, created, updated, code, reason, rounds, input, \
             cache_read, cache_write, output, reasoning, cost, events FROM runs LIMIT 1; \
             INSERT INTO attempts SELECT {strays}, {strays}, number, started, ended, reason FROM attempts LIMIT 1"
        ))
        .await;
    trace.rebuild().await.unwrap();

    assert_eq!(place.views().await, before);
    assert_eq!(trace.audit_all().await.unwrap().len(), 5);
    trace.close().await;
}

pub(crate) async fn runs_are_listed_newest_first_page_by_page(place: &Place) {
    let trace = place.open().await;
    let mut runs: Vec<RunId> = Vec::new();
    for n in 0..25 {
        let run = run_at(1_000 + n);
        trace.append(of(run, story(run).events[..1].to_vec())).await.unwrap();
        runs.insert(0, run);
    }
    // A run of which nobody told how it was made is not shown.
    trace.append(of(run_at(5_000), vec![note("a.b", json!({}))])).await.unwrap();

    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = trace.runs(before, 10).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.run);
        listed.extend(page.iter().map(|row| row.run));
    }

    assert_eq!(listed, runs);
    assert_eq!(trace.run(run_at(9_000)).await.unwrap(), None);
    assert_eq!(trace.tasks(run_at(9_000)).await.unwrap(), []);
    trace.close().await;
}

pub(crate) async fn sums_stop_at_the_largest_number(place: &Place) {
    let trace = place.open().await;
    let mut story = story(run_at(1));
    let most = Usage {
        input: u64::MAX,
        cache_read: u64::MAX,
        cache_write: u64::MAX,
        output: u64::MAX,
        reasoning: u64::MAX,
    };
    for event in &mut story.events {
        if let EventBody::ModelCompleted(data) = &mut event.body {
            data.usage = most;
            data.cost = Usd::MAX;
        }
    }
    let call = story.events[6].clone();

    trace.append(of(story.run, story.events.clone())).await.unwrap();
    trace.append(of(story.run, vec![call.clone()])).await.unwrap();
    trace.append(of(story.run, vec![call.clone(), call])).await.unwrap();

    let row = trace.run(story.run).await.unwrap().unwrap();
    let largest = u64::try_from(i64::MAX).unwrap();
    assert_eq!((row.rounds, row.cost, row.usage.input), (4, Usd::MAX, largest));
    let before = place.views().await;
    trace.rebuild().await.unwrap();
    assert_eq!(place.views().await, before);
    trace.close().await;
}
