//! Pages in a real Chromium, from a server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use formwork_browser::{Browsers, find, tools};
use formwork_protocols::{
    AgentName, CallId, Cancel, RunId, SessionId, SystemClock, SystemRng, TaskId, Tool, ToolError,
    ToolErrorKind, ToolOutput, tool::CallContext,
};
use formwork_testkit::{
    chromium,
    http::{Reply, Server},
};
use formwork_tool::HttpRules;
use serde_json::{Value, json};

/// A conversation with a browser, and servers that it may and may not ask.
struct Place {
    browsers: Arc<Browsers>,
    tools: Vec<Arc<dyn Tool>>,
    context: CallContext,
    server: Server,
    other: Server,
}

/// Returns where a server is, as the rules name it.
fn authority(server: &Server) -> String {
    server.url().trim_start_matches("http://").to_owned()
}

fn page(body: &str) -> Reply {
    typed(
        "text/html; charset=utf-8",
        &format!("<!doctype html><title>A page</title><body>{body}</body>"),
    )
}

fn typed(kind: &str, body: &str) -> Reply {
    Reply::new(200).header("content-type", kind).body(body)
}

impl Place {
    /// Makes a place whose rules name the first server alone; nothing where there is no Chromium.
    async fn new() -> Option<Self> {
        Self::with(|server, _| (Some(vec![authority(server)]), vec![authority(server)])).await
    }

    async fn with(
        rules: impl FnOnce(&Server, &Server) -> (Option<Vec<String>>, Vec<String>),
    ) -> Option<Self> {
        let (named, path) = chromium::environment()?;
        let (server, other) = (Server::start().await.unwrap(), Server::start().await.unwrap());
        let (hosts, private) = rules(&server, &other);
        let rules = HttpRules::parse(hosts.as_deref(), &private).unwrap();
        let browsers = Browsers::new(move || find(named.as_deref(), &path, &[]));
        let (clock, rng) = (SystemClock, SystemRng);
        let context = CallContext {
            run: RunId::generate(&clock, &rng),
            task: TaskId::generate(&clock, &rng),
            session: SessionId::generate(&clock, &rng),
            call: CallId::generate(&clock, &rng),
            agent: AgentName::parse("coder").unwrap(),
        };
        let tools = tools(&browsers, rules);
        Some(Self { browsers, tools, context, server, other })
    }

    fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        let found = self.tools.iter().find(|tool| tool.spec().definition.name.as_str() == name);
        found.unwrap()
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.tool(name).call(&self.context, arguments, &Cancel::new()).await
    }

    /// Calls a tool that has to end well, and returns the text.
    async fn text(&self, name: &str, arguments: Value) -> String {
        self.call(name, arguments).await.unwrap().text
    }

    async fn open(&self, path: &str) -> String {
        self.text("browser.open", json!({ "url": format!("{}{path}", self.server.url()) })).await
    }
}

/// Returns the number by which something on a page is named.
fn number(text: &str, what: &str) -> u64 {
    let before = text.split(what).next().unwrap();
    let digits = before.rsplit('[').next().unwrap().split(' ').next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{what} has no number in:\n{text}"))
}

#[tokio::test]
async fn a_page_is_read_filled_in_and_clicked() {
    let Some(place) = Place::new().await else { return };
    let form = "<h1>Search</h1><p style='display:none'>hidden</p><p>Find <b>things</b>.</p>\
        <form action='/found'><label>Words <input name=q></label>\
        <select name=kind><option>red<option>blue</select><input type=checkbox name=all>\
        <button>Go</button></form><a href='/next?a=1' target=_blank>Next page</a>\
        <script>document.body.append('made by a script'); alert('hello')</script>";
    place.server.reply_always("/form", page(form));
    place.server.answer("/found", |request| page(&format!("<p>asked: {}</p>", request.target)));
    place.server.reply_always("/next", page("<p>the next</p>"));

    let form = place.open("/form").await;
    let filled = place
        .text("browser.type", json!({ "number": number(&form, "field \"Words"), "text": "a b&c" }))
        .await;
    let chosen = place
        .text("browser.type", json!({ "number": number(&filled, "choice \"kind"), "text": "blue" }))
        .await;
    let ticked =
        place.text("browser.click", json!({ "number": number(&chosen, "checkbox") })).await;
    let found =
        place.text("browser.click", json!({ "number": number(&ticked, "button: Go") })).await;
    let form = place.open("/form").await;
    let next = place
        .call("browser.click", json!({ "number": number(&form, "link: Next page") }))
        .await
        .unwrap();
    let stale = place.call("browser.click", json!({ "number": 99 })).await.unwrap_err();
    place.browsers.close().await;

    assert!(form.contains("A page\n[a box was closed that said: hello]\n"), "{form}");
    assert!(form.contains("# Search\n") && form.contains("Find things."), "{form}");
    assert!(form.contains("made by a script") && !form.contains("hidden"), "{form}");
    assert!(form.contains("link: Next page -> /next?a=1]"), "{form}");
    assert!(filled.contains(": a b&c]"), "{filled}");
    assert!(chosen.contains("red | *blue]"), "{chosen}");
    assert!(ticked.contains(": on]"), "{ticked}");
    assert!(found.contains("asked: /found?q=a+b%26c&kind=blue&all=on"), "{found}");
    assert!(next.text.contains("the next"), "{}", next.text);
    assert_eq!(next.outside, Some(authority(&place.server)));
    assert!(stale.message.contains("there is no 99"), "{stale:?}");
}

#[tokio::test]
async fn a_page_gets_nothing_from_a_host_that_is_not_allowed() {
    let Some(place) = Place::with(|server, _| {
        // The other is at the same machine: that is allowed, and it is on no list.
        (Some(vec![authority(server)]), vec!["127.0.0.1:*".to_owned()])
    })
    .await
    else {
        return;
    };
    let other = place.other.url();
    let socket = other.replace("http", "ws");
    let try_all = format!(
        "<p id=out>begun</p><img src='{other}/img.png'><link rel=stylesheet href='{other}/a.css'>\
         <link rel=preconnect href='{other}'><link rel=dns-prefetch href='//name.invalid'>\
         <iframe src='{other}/frame'></iframe><script src='{other}/a.js'></script>\
         <script>
         const tried = [];
         const ends = (name, work) => work.then(() => tried.push(name + ' came'), () => tried.push(name + ' refused'));
         const socket = new Promise((come, fail) => {{ const s = new WebSocket('{socket}/ws'); s.onopen = come; s.onerror = fail; }});
         navigator.sendBeacon('{other}/beacon', 'x');
         Promise.all([
           ends('fetch', fetch('{other}/fetch', {{ mode: 'no-cors' }})),
           ends('redirect', fetch('/away', {{ mode: 'no-cors' }})),
           ends('name', fetch('http://name.invalid/', {{ mode: 'no-cors' }})),
           ends('metadata', fetch('http://169.254.169.254/latest', {{ mode: 'no-cors' }})),
           ends('socket', socket),
           ends('worker', navigator.serviceWorker ? navigator.serviceWorker.register('/worker.js').then((r) => navigator.serviceWorker.ready).then(() => new Promise((come, fail) => {{ navigator.serviceWorker.onmessage = (e) => e.data === 'came' ? come() : fail(); navigator.serviceWorker.ready.then((r) => r.active.postMessage('go')); }})) : Promise.reject()),
         ]).then(() => {{ out.textContent = tried.sort().join(', '); }});
         </script>"
    );
    place.server.reply_always("/", page(&try_all));
    place
        .server
        .reply_always("/away", Reply::text(302, "").header("location", &format!("{other}/away")));
    let worker = format!(
        "onmessage = (e) => fetch('{other}/from-worker', {{ mode: 'no-cors' }}).then(() => e.source.postMessage('came'), () => e.source.postMessage('refused'));"
    );
    place.server.reply_always("/worker.js", typed("text/javascript", &worker));
    for path in [
        "/img.png",
        "/a.css",
        "/frame",
        "/a.js",
        "/beacon",
        "/fetch",
        "/away",
        "/from-worker",
        "/ws",
    ] {
        place.other.reply_always(
            path,
            Reply::text(200, "came").header("access-control-allow-origin", "*"),
        );
    }

    let opened = place.open("/").await;
    let mut read = opened.clone();
    for _ in 0..20 {
        if read.contains("worker") {
            break;
        }
        read = place.text("browser.read", json!({})).await;
    }
    let moved =
        place.call("browser.open", json!({ "url": format!("{}/away", place.server.url()) })).await;
    place.browsers.close().await;

    assert!(
        read.contains(
            "fetch refused, metadata refused, name refused, redirect refused, socket refused, worker refused"
        ),
        "{read}"
    );
    let refused = format!(
        "[nothing was loaded from {}: it is not on the list of hosts]",
        authority(&place.other)
    );
    assert!(opened.contains(&refused) || read.contains(&refused), "{opened}\n{read}");
    let moved = moved.unwrap_err();
    assert!(moved.message.contains("was not asked: it is not on the list of hosts"), "{moved:?}");
    assert_eq!(place.other.requests().len(), 0, "{:?}", place.other.requests());
}

#[tokio::test]
async fn without_a_list_a_page_asks_only_the_host_that_was_decided_on() {
    let Some(place) = Place::with(|_, _| (None, vec!["127.0.0.1:*".to_owned()])).await else {
        return;
    };
    place
        .server
        .reply_always("/", page(&format!("<img src='{}/x.png'><p>here</p>", place.other.url())));
    place.server.reply_always("/favicon.ico", Reply::text(404, ""));

    let opened = place.open("/").await;
    place.browsers.close().await;

    assert!(opened.contains("here"), "{opened}");
    assert_eq!(place.other.requests().len(), 0);
}

#[tokio::test]
async fn an_address_of_this_machine_is_opened_only_where_that_is_said() {
    let Some(place) = Place::with(|server, _| (Some(vec![authority(server)]), Vec::new())).await
    else {
        return;
    };

    let private =
        place.call("browser.open", json!({ "url": place.server.url() })).await.unwrap_err();
    let nothing = place.call("browser.read", json!({})).await.unwrap_err();
    let mut schemes = Vec::new();
    for url in
        ["file:///etc/passwd", "chrome://version", "javascript:alert(1)", "view-source:http://a/"]
    {
        schemes.push(place.call("browser.open", json!({ "url": url })).await.unwrap_err());
    }
    place.browsers.close().await;

    assert!(private.message.contains("an address of this machine"), "{private:?}");
    assert!(
        nothing.message.contains("not read") || nothing.message.contains("no page"),
        "{nothing:?}"
    );
    for refused in schemes {
        assert_eq!(refused.kind, ToolErrorKind::InvalidArguments, "{refused:?}");
    }
    assert_eq!(place.server.requests().len(), 0);
}

#[tokio::test]
async fn a_picture_is_kept_and_the_browser_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    // Each test is a process of its own.
    let _ = tempfile::env::override_temp_dir(temporary.path());
    let Some(place) = Place::new().await else { return };
    place.server.reply_always("/", page("<h1>Red</h1><a download href='/file.bin'>Get it</a>"));
    place.server.reply_always("/file.bin", typed("application/octet-stream", "bytes"));

    let opened = place.open("/").await;
    let profiles = std::fs::read_dir(temporary.path()).unwrap().count();
    let clicked =
        place.text("browser.click", json!({ "number": number(&opened, "link: Get it") })).await;
    let picture = place.call("browser.screenshot", json!({})).await.unwrap();
    place.browsers.close().await;
    let after = place.call("browser.read", json!({})).await.unwrap_err();

    assert!(clicked.contains("Red"), "{clicked}");
    assert_eq!(picture.kept[0].media_type, "image/png");
    assert!(picture.kept[0].bytes.starts_with(b"\x89PNG\r\n"));
    assert!(after.message.starts_with("no page is open"), "{after:?}");
    assert_eq!(profiles, 1);
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn who_has_no_chromium_is_told_what_to_do() {
    let browsers = Browsers::new(|| find(None, "/nowhere".as_ref(), &[]));
    let tools = tools(&browsers, HttpRules::nothing().unwrap());
    let (clock, rng) = (SystemClock, SystemRng);
    let context = CallContext {
        run: RunId::generate(&clock, &rng),
        task: TaskId::generate(&clock, &rng),
        session: SessionId::generate(&clock, &rng),
        call: CallId::generate(&clock, &rng),
        agent: AgentName::parse("coder").unwrap(),
    };

    let error = tools[0]
        .call(&context, json!({ "url": "https://docs.rs" }), &Cancel::new())
        .await
        .unwrap_err();

    assert!(error.message.starts_with("there is no Chromium on this machine"), "{error:?}");
    assert!(error.message.contains("apt-get install chromium"), "{error:?}");
}
