//! A page, as somebody in front of it uses it: opened, read, clicked, filled in and photographed.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formwork_protocols::SessionId;
use formwork_tool::HttpRules;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::{
    Error,
    chromium::Chromium,
    connection::{Connection, Note},
    proxy::{Proxy, Ways, authority},
};

/// What reads a page and numbers its elements.
const READ: &str = include_str!("page.js");

/// Waits until a page has loaded and rests for a moment, and no longer than it takes to be of use: many never rest.
const SETTLE: &str = "new Promise((done) => {
  const rest = () => requestIdleCallback(() => setTimeout(done, 100), { timeout: 1000 });
  const begin = () => document.readyState === 'complete' ? rest() : addEventListener('load', rest, { once: true });
  setTimeout(begin, 50);
  setTimeout(done, 8000);
})";

/// A window that opens itself takes the place of the page: there is one page for whoever reads.
const ONE_WINDOW: &str = "window.open = (url) => { if (url) location.href = url; return window; };
addEventListener('click', (event) => {
  const link = event.composedPath().find((it) => it.tagName === 'A' && it.target);
  if (link) link.target = '_self';
}, true);";

/// How long one thing may take that is asked of a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a page may go elsewhere while it is waited for.
const MAX_MOVES: usize = 8;

/// How many refusals are told at once.
const MAX_TOLD: usize = 6;

/// The world beside the page's own in which it is read: no script of the page reaches into it.
const WORLD: &str = "formwork";

/// What a page says of itself, and what it was not let do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) url: String,
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) cut: bool,
    /// Hosts that were asked for and refused, with the reason.
    pub(crate) refused: Vec<(String, String)>,
    /// What it said in boxes, which were closed.
    pub(crate) dialogs: Vec<String>,
}

/// The browsers of all conversations of a run. Each has one of its own, with a profile that nobody else sees.
pub struct Browsers {
    find: Box<dyn Fn() -> Result<PathBuf, String> + Send + Sync>,
    open: tokio::sync::Mutex<HashMap<SessionId, Arc<tokio::sync::Mutex<Option<Browser>>>>>,
    /// Where the page of each conversation is, as `host:port`.
    places: Mutex<HashMap<SessionId, String>>,
}

impl Browsers {
    /// Begins with none. `find` is asked where Chromium is once somebody wants one; why there is none is told to them.
    pub fn new(find: impl Fn() -> Result<PathBuf, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            find: Box::new(find),
            open: Default::default(),
            places: Default::default(),
        })
    }

    /// Ends all of them, and waits until they have.
    pub async fn close(&self) {
        let all: Vec<_> = self.open.lock().await.drain().map(|(_, slot)| slot).collect();
        self.places().clear();
        for slot in all {
            let browser = slot.lock().await.take();
            if let Some(browser) = browser {
                browser.end().await;
            }
        }
    }

    /// Returns where the page of a conversation is.
    pub(crate) fn place(&self, session: SessionId) -> Option<String> {
        self.places().get(&session).cloned()
    }

    /// Has something done with the browser of a conversation. `judged` is where its page was when that was decided on. A
    /// browser that failed for good, or whose future was dropped, is gone afterwards.
    pub(crate) async fn act(
        &self,
        session: SessionId,
        (rules, judged): (&HttpRules, Option<&str>),
        act: &Act,
    ) -> Result<Came, Error> {
        let slot = Arc::clone(self.open.lock().await.entry(session).or_default());
        let mut slot = slot.lock().await;
        let mut browser = match (slot.take(), act) {
            (Some(browser), _) => browser,
            (None, Act::Open(_)) => {
                let program = (self.find)().map_err(|reason| Error::NoChromium { reason })?;
                Browser::start(program, rules.clone()).await?
            }
            (None, _) => {
                self.places().remove(&session);
                return Err(Error::NoPage);
            }
        };
        let done = tokio::time::timeout(PATIENCE, browser.act(act, judged)).await;
        let done = done.unwrap_or_else(|_| {
            Err(Error::Gone { reason: format!("it took longer than {} s", PATIENCE.as_secs()) })
        });
        match browser.authority() {
            Some(place) => drop(self.places().insert(session, place)),
            None => drop(self.places().remove(&session)),
        }
        if done.as_ref().is_err_and(Error::is_fatal) {
            self.places().remove(&session);
            browser.end().await;
        } else {
            *slot = Some(browser);
        }
        done
    }

    fn places(&self) -> MutexGuard<'_, HashMap<SessionId, String>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Browsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browsers").field("places", &self.places()).finish_non_exhaustive()
    }
}

/// What is done with a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is another one from now on.
    Open(Url),
    Read,
    Click(u32),
    Fill {
        number: u32,
        text: String,
        enter: bool,
    },
    Photograph,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    Page(Seen),
    /// A PNG.
    Picture(Vec<u8>),
}

/// A browser with its one page.
pub(crate) struct Browser {
    connection: Connection,
    chromium: Chromium,
    ways: Arc<Ways>,
    _proxy: Proxy,
    /// The page, as the browser names it in commands.
    page: String,
    frame: String,
    /// The world in which the page was read last.
    world: Option<u64>,
    /// Where the page was when it was looked at last.
    url: Option<Url>,
}

impl Browser {
    async fn start(program: PathBuf, rules: HttpRules) -> Result<Self, Error> {
        let ways = Arc::new(Ways::new(rules));
        let proxy = Proxy::start(Arc::clone(&ways))
            .await
            .map_err(|source| Error::NotStarted { program: program.clone(), source })?;
        let (chromium, mut connection) = Chromium::start(&program, proxy.address)?;
        let opened = tokio::time::timeout(PATIENCE, prepare(&mut connection)).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(Error::Gone {
                reason: format!("it took longer than {} s to start", PATIENCE.as_secs()),
            })
        });
        match opened {
            Ok((page, frame)) => {
                let (world, url) = (None, None);
                Ok(Self { connection, chromium, ways, _proxy: proxy, page, frame, world, url })
            }
            Err(error) => {
                drop(connection);
                chromium.end().await;
                Err(match error {
                    Error::Gone { reason } => Error::Gone {
                        reason: format!(
                            "{} did not begin to answer ({reason}); `{} --headless about:blank` tells why",
                            program.display(),
                            program.display()
                        ),
                    },
                    other => other,
                })
            }
        }
    }

    async fn end(self) {
        let Self { connection, chromium, .. } = self;
        // A browser whose pipes are closed leaves.
        drop(connection);
        chromium.end().await;
    }

    /// Returns where the page is, as `host:port`.
    pub(crate) fn authority(&self) -> Option<String> {
        self.url.as_ref().filter(|url| matches!(url.scheme(), "http" | "https")).and_then(authority)
    }

    async fn act(&mut self, act: &Act, judged: Option<&str>) -> Result<Came, Error> {
        let seen = match act {
            Act::Open(url) => self.open(url).await,
            Act::Read => self.read().await,
            Act::Photograph => return self.photograph().await.map(Came::Picture),
            Act::Click(_) | Act::Fill { .. } if !self.is_still_at(judged).await? => {
                let reason =
                    "the page has gone elsewhere since it was read: call browser.read first";
                Err(Error::Page { reason: reason.to_owned() })
            }
            Act::Click(number) => self.click(*number).await,
            Act::Fill { number, text, enter } => self.fill(*number, text, *enter).await,
        };
        seen.map(Came::Page)
    }

    /// Goes to an address that was decided on, and reads what is there.
    async fn open(&mut self, url: &Url) -> Result<Seen, Error> {
        self.ways.open(url);
        self.ways.refused();
        let went = self.command("Page.navigate", json!({ "url": url.as_str() })).await?;
        if let Some(error) = went["errorText"].as_str().filter(|text| !text.is_empty()) {
            let why = self.ways.kept_off(authority(url).as_deref()).map_or_else(
                || error.to_owned(),
                |(host, why)| format!("{host} was not asked: {why}"),
            );
            return Err(Error::Page { reason: format!("{url} did not come: {why}") });
        }
        self.settled().await
    }

    /// Reads the page.
    async fn read(&mut self) -> Result<Seen, Error> {
        #[derive(Deserialize)]
        struct Read {
            url: String,
            title: String,
            text: String,
            cut: bool,
        }
        self.enter().await?;
        let read = self.evaluate(READ).await?;
        let unread = |error: serde_json::Error| Error::Page { reason: error.to_string() };
        let Read { url, title, text, cut } = serde_json::from_value(read).map_err(unread)?;
        self.url = Url::parse(&url).ok();
        let mut refused = self.ways.refused();
        if self.authority().is_none() {
            let about = formwork_protocols::text::head(&url, 200);
            let why = refused.first().map_or_else(
                || format!("the page is at {about}, which is not read"),
                |(host, why)| format!("it went to {host}, which was not asked: {why}"),
            );
            return Err(Error::Page { reason: why });
        }
        refused.truncate(MAX_TOLD);
        let dialogs = std::mem::take(&mut self.connection.notes);
        let dialogs = dialogs.into_iter().map(|Note::Dialog(said)| said).collect();
        Ok(Seen { url, title, text, cut, refused, dialogs })
    }

    /// Tells whether the page that was read last is there still, and where that was decided on.
    async fn is_still_at(&mut self, judged: Option<&str>) -> Result<bool, Error> {
        if self.world.is_none() || judged.is_none() {
            return Ok(false);
        }
        match self.evaluate("location.href").await {
            Ok(href) => self.url = href.as_str().and_then(|href| Url::parse(href).ok()),
            // The world of a page that has gone is gone too.
            Err(Error::Refused { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(self.authority().as_deref() == judged)
    }

    /// Enters the world beside the page's own: what is asked there no script of the page answers.
    async fn enter(&mut self) -> Result<(), Error> {
        let params = json!({ "frameId": self.frame, "worldName": WORLD });
        let world = self.command("Page.createIsolatedWorld", params).await?;
        self.world = world["executionContextId"].as_u64();
        Ok(())
    }

    /// Clicks what was numbered, and reads what came of it.
    async fn click(&mut self, number: u32) -> Result<Seen, Error> {
        let place = self
            .element(
                number,
                "e.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
                 const box = e.getClientRects()[0];
                 return box ? { x: box.x + box.width / 2, y: box.y + box.height / 2 } : {};",
            )
            .await?;
        let (Some(x), Some(y)) = (place["x"].as_f64(), place["y"].as_f64()) else {
            return Err(Error::NoElement { number });
        };
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let pressed = kind != "mouseMoved";
            let params = json!({
                "type": kind, "x": x, "y": y,
                "button": if pressed { "left" } else { "none" },
                "clickCount": u8::from(pressed),
            });
            self.command("Input.dispatchMouseEvent", params).await?;
        }
        self.settled().await
    }

    /// Fills in what was numbered: a text in place of what stands there, or one of the options of a choice.
    async fn fill(&mut self, number: u32, text: &str, enter: bool) -> Result<Seen, Error> {
        let told = self
            .element(
                number,
                &format!(
                    "const wanted = {};
                     if (e.tagName === 'SELECT') {{
                       const option = [...e.options].find((o) => o.text.trim() === wanted.trim()) || [...e.options].find((o) => o.value === wanted);
                       if (!option) return {{ none: true }};
                       e.value = option.value;
                       e.dispatchEvent(new Event('input', {{ bubbles: true }}));
                       e.dispatchEvent(new Event('change', {{ bubbles: true }}));
                       return {{ chosen: true }};
                     }}
                     e.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                     e.focus();
                     if (e.select) e.select(); else if (e.isContentEditable) getSelection().selectAllChildren(e);
                     return {{ focused: e.getRootNode().activeElement === e }};",
                    json!(text)
                ),
            )
            .await?;
        if told["none"] == true {
            let reason = format!("{number} has no option {text:?}");
            return Err(Error::Page { reason });
        }
        if told["chosen"] != true {
            if told["focused"] != true {
                return Err(Error::Page { reason: format!("nothing can be typed into {number}") });
            }
            match text.is_empty() {
                true => self.key("Backspace", 8, "").await?,
                false => drop(self.command("Input.insertText", json!({ "text": text })).await?),
            }
        }
        if enter {
            self.key("Enter", 13, "\r").await?;
        }
        self.settled().await
    }

    async fn key(&mut self, name: &str, code: u8, text: &str) -> Result<(), Error> {
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({
                "type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code,
            });
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.command("Input.dispatchKeyEvent", params).await?;
        }
        Ok(())
    }

    /// Returns what the page looks like, as a PNG.
    async fn photograph(&mut self) -> Result<Vec<u8>, Error> {
        let params = json!({ "format": "png", "optimizeForSpeed": true });
        let taken = self.command("Page.captureScreenshot", params).await?;
        STANDARD
            .decode(taken["data"].as_str().unwrap_or_default())
            .map_err(|error| Error::Page { reason: format!("its picture is none: {error}") })
    }

    /// Does something with an element that was numbered when the page was read last.
    async fn element(&mut self, number: u32, work: &str) -> Result<Value, Error> {
        let script = format!(
            "(() => {{ const e = (globalThis.formworkFound || [])[{number} - 1];
             if (!e || !e.isConnected) return null;
             {work} }})()"
        );
        match self.evaluate(&script).await {
            // The world of a page that has gone is gone too.
            Ok(Value::Null) | Err(Error::Refused { .. }) => Err(Error::NoElement { number }),
            other => other,
        }
    }

    async fn evaluate(&mut self, script: &str) -> Result<Value, Error> {
        let mut params =
            json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        if let Some(world) = self.world {
            params["contextId"] = json!(world);
        }
        let mut done = self.command("Runtime.evaluate", params).await?;
        if let Some(fault) = done.get("exceptionDetails") {
            let reason = fault["exception"]["description"].as_str().or(fault["text"].as_str());
            let reason = reason.unwrap_or("a script failed").to_owned();
            return Err(Error::Page { reason });
        }
        Ok(done["result"]["value"].take())
    }

    /// Waits until the page rests, wherever it goes meanwhile, and reads it.
    async fn settled(&mut self) -> Result<Seen, Error> {
        let mut moves = 0;
        loop {
            let rested = match self.enter().await {
                Ok(()) => self.evaluate(SETTLE).await,
                Err(error) => Err(error),
            };
            let seen = match rested {
                Ok(_) => self.read().await,
                Err(error) => Err(error),
            };
            match seen {
                // The page went elsewhere while it was waited for.
                Err(Error::Refused { .. }) if moves < MAX_MOVES => moves += 1,
                seen => return seen,
            }
        }
    }

    async fn command(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.connection.command(Some(&self.page), method, params).await
    }
}

/// Makes the one page, and returns how it and its frame are named.
async fn prepare(connection: &mut Connection) -> Result<(String, String), Error> {
    let gone = |what: &str| Error::Gone { reason: format!("it names no {what}") };
    let targets = connection.command(None, "Target.getTargets", json!({})).await?;
    let page = |target: &&Value| target["type"] == "page";
    let target = targets["targetInfos"].as_array().and_then(|all| all.iter().find(page));
    let target = target.ok_or_else(|| gone("page"))?["targetId"].clone();
    let params = json!({ "targetId": target, "flatten": true });
    let attached = connection.command(None, "Target.attachToTarget", params).await?;
    let session = attached["sessionId"].as_str().ok_or_else(|| gone("session"))?.to_owned();
    connection.command(None, "Browser.setDownloadBehavior", json!({ "behavior": "deny" })).await?;
    connection.command(Some(&session), "Page.enable", json!({})).await?;
    let script = json!({ "source": ONE_WINDOW });
    connection.command(Some(&session), "Page.addScriptToEvaluateOnNewDocument", script).await?;
    let tree = connection.command(Some(&session), "Page.getFrameTree", json!({})).await?;
    let frame = tree["frameTree"]["frame"]["id"].as_str().ok_or_else(|| gone("frame"))?.to_owned();
    Ok((session, frame))
}
