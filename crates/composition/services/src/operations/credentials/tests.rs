use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use formwork_protocols::{Clock, Position, RunId, SystemRng, store::Selection};

use super::*;
use crate::{Builder, config::Config};

/// A clock that stands until it is moved.
struct Standing(AtomicI64);

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

struct World {
    formwork: Formwork,
    clock: Arc<Standing>,
    ada: Caller,
}

impl World {
    async fn new(workspace: &Path, url: &str) -> Self {
        let clock = Arc::new(Standing(AtomicI64::new(1_800_000_000_000_000)));
        let config = Config { database_url: Some(url.to_owned()), ..Config::default() };
        let formwork = Builder::new(workspace)
            .config(config)
            .time(Arc::clone(&clock) as _, Arc::new(SystemRng))
            .build()
            .await
            .unwrap();
        let ada = Caller::owner(principal("user:ada"));
        Self { formwork, clock, ada }
    }

    fn pass(&self, span: Span) {
        let micros = i64::try_from(span.as_micros()).unwrap();
        self.clock.0.fetch_add(micros, Ordering::Relaxed);
    }

    async fn add(&self, to: &str, expires_in: Option<Span>) -> Given {
        let params = AddParams { to: principal(to), scopes: vec![Scope::Read], expires_in };
        self.formwork.call::<Add>(&self.ada, params).await.unwrap()
    }

    async fn admits(&self, token: &str) -> Result<Principal, String> {
        let admitted = self.formwork.guard().admit(token).await;
        admitted.map(|it| it.principal).map_err(|error| error.to_string())
    }

    async fn refuses<O: Operation>(&self, caller: &Caller, params: O::Params) -> String {
        match self.formwork.call::<O>(caller, params).await {
            Err(error) => error.to_string(),
            Ok(_) => "it was done".to_owned(),
        }
    }
}

fn principal(text: &str) -> Principal {
    Principal::parse(text).unwrap()
}

async fn on_sqlite() -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (World::new(folder.path(), "sqlite::memory:").await, folder)
}

#[tokio::test]
async fn a_credential_is_taken_until_it_expires_is_replaced_or_revoked() {
    let (world, _folder) = on_sqlite().await;
    let hour = Span::from_secs(3_600);
    let lasting = world.add("user:bob", None).await;
    let short = world.add("service:ci", Some(hour)).await;
    let id = lasting.credential.id;

    let first = [world.admits(&lasting.token).await, world.admits(&short.token).await];
    let rotate = RotateParams { id, overlap: Some(hour) };
    let rotated = world.formwork.call::<Rotate>(&world.ada, rotate).await.unwrap();
    let both = [world.admits(&lasting.token).await, world.admits(&rotated.token).await];
    world.pass(hour);
    let later = [world.admits(&lasting.token).await, world.admits(&rotated.token).await];
    let expired = world.admits(&short.token).await;
    world.formwork.call::<Revoke>(&world.ada, RevokeParams { id }).await.unwrap();
    let revoked = world.admits(&rotated.token).await;

    let bob = || Ok(principal("user:bob"));
    assert_eq!(first, [bob(), Ok(principal("service:ci"))]);
    assert_eq!(both, [bob(), bob()]);
    assert_eq!(
        later,
        [Err(format!("the token of credential {id} was replaced by another")), bob()]
    );
    assert!(expired.unwrap_err().contains("has expired at"));
    assert_eq!(revoked, Err(format!("the credential {id} was revoked")));
    let again = RotateParams { id, overlap: None };
    let over = world.refuses::<Rotate>(&world.ada, again).await;
    assert_eq!(over, format!("credential {id} is revoked and has no other token"));
    world.formwork.close().await;
}

#[tokio::test]
async fn the_last_token_but_one_is_over_once_there_is_another() {
    let (world, _folder) = on_sqlite().await;
    let given = world.add("user:bob", None).await;
    let rotate = || RotateParams { id: given.credential.id, overlap: None };

    let second = world.formwork.call::<Rotate>(&world.ada, rotate()).await.unwrap();
    let third = world.formwork.call::<Rotate>(&world.ada, rotate()).await.unwrap();

    assert!(world.admits(&given.token).await.is_err());
    assert!(world.admits(&second.token).await.is_ok() && world.admits(&third.token).await.is_ok());
    world.formwork.close().await;
}

async fn the_first_credential_is_given_once(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(folder.path(), url).await;
    let ask = || world.formwork.call::<Bootstrap>(&world.ada, BootstrapParams::default());

    let first = ask().await.unwrap();
    let second = ask().await.unwrap_err();

    assert_eq!(first.credential.scopes, Scope::ALL);
    assert_eq!(second.to_string(), "the first credential was given before, to user:ada");
    assert!(second.hint().unwrap().contains("formwork auth add"));
    assert_eq!(world.admits(&first.token).await, Ok(principal("user:ada")));
    world.formwork.close().await;
}

#[tokio::test]
async fn sqlite_the_first_credential_is_given_once() {
    the_first_credential_is_given_once("sqlite::memory:").await;
}

#[tokio::test]
async fn pg_the_first_credential_is_given_once() {
    let Some(postgres) = formwork_testkit::postgres::Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    the_first_credential_is_given_once(database.url()).await;
}

/// Two processes on one log: what one of them does counts for the other's next request.
async fn what_one_process_does_counts_for_another(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let one = World::new(folder.path(), url).await;
    let two = World::new(folder.path(), url).await;

    let given = one.add("user:bob", None).await;
    let id = given.credential.id;
    let there = two.admits(&given.token).await;
    let asked = [&one, &two].map(|it| {
        it.formwork
            .guard()
            .bootstrap(it.ada.principal(), Grant::new(principal("user:eve"), Scope::ALL))
    });
    let [here, beside] = asked;
    let (here, beside) = tokio::join!(here, beside);
    two.formwork.call::<Revoke>(&two.ada, RevokeParams { id }).await.unwrap();
    let gone = one.admits(&given.token).await;

    assert_eq!(there, Ok(principal("user:bob")));
    assert!(here.is_err() && beside.is_err(), "one was given before");
    assert_eq!(gone, Err(format!("the credential {id} was revoked")));
    one.formwork.close().await;
    two.formwork.close().await;
}

#[tokio::test]
async fn sqlite_what_one_process_does_counts_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("formwork.db").display());
    what_one_process_does_counts_for_another(&url).await;
}

#[tokio::test]
async fn pg_what_one_process_does_counts_for_another() {
    let Some(postgres) = formwork_testkit::postgres::Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    what_one_process_does_counts_for_another(database.url()).await;
}

#[tokio::test]
async fn of_many_who_ask_for_the_first_credential_at_once_one_is_given_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("formwork.db").display());
    let (one, two) = tokio::join!(World::new(folder.path(), &url), World::new(folder.path(), &url));
    let ask = |world: &World| {
        let (formwork, ada) = (world.formwork.clone(), world.ada.clone());
        async move { formwork.call::<Bootstrap>(&ada, BootstrapParams::default()).await }
    };

    let asked = tokio::join!(ask(&one), ask(&two), ask(&one), ask(&two));

    let given = [&asked.0, &asked.1, &asked.2, &asked.3].iter().filter(|it| it.is_ok()).count();
    assert_eq!(given, 1, "{asked:?}");
    one.formwork.close().await;
    two.formwork.close().await;
}

#[tokio::test]
async fn behaviour_17_who_has_a_history_is_revoked_and_never_removed() {
    let (world, _folder) = on_sqlite().await;
    let given = world.add("user:bob", None).await;
    let id = given.credential.id;

    let revoked = world.formwork.call::<Revoke>(&world.ada, RevokeParams { id }).await.unwrap();
    let again = world.formwork.call::<Revoke>(&world.ada, RevokeParams { id }).await.unwrap();
    let listed =
        async |all| world.formwork.call::<List>(&world.ada, ListParams { all }).await.unwrap();

    let (live, all) = (listed(false).await, listed(true).await);
    assert_eq!((live.credentials.len(), live.over), (0, 1));
    assert_eq!(all.credentials, std::slice::from_ref(&revoked));
    assert_eq!((&again, revoked.standing.as_str()), (&revoked, "revoked"));
    let removes = |name: &str| name.contains("delete") || name.contains("remove");
    let all = crate::capability::CAPABILITIES.iter().map(|it| it.name);
    assert_eq!(all.filter(|name| name.starts_with("credentials.") && removes(name)).count(), 0);
    world.formwork.close().await;
}

#[tokio::test]
async fn nobody_gives_what_they_lack_and_nobody_acts_as_a_part_of_formwork() {
    let (world, _folder) = on_sqlite().await;
    let strong = world.formwork.call::<Bootstrap>(&world.ada, BootstrapParams::default()).await;
    let id = strong.unwrap().credential.id;
    let clerk = Caller::new(principal("user:clerk"), [Scope::Admin]);
    let reader = Caller::new(principal("user:reader"), [Scope::Read, Scope::Run]);
    let add =
        |to: &str, scopes: Vec<Scope>| AddParams { to: principal(to), scopes, expires_in: None };

    let told = [
        world.refuses::<Add>(&clerk, add("user:me", vec![Scope::Admin, Scope::Run])).await,
        world.refuses::<Rotate>(&clerk, RotateParams { id, overlap: None }).await,
        world.refuses::<Add>(&reader, add("user:me", vec![Scope::Read])).await,
        world.refuses::<List>(&reader, ListParams::default()).await,
        world.refuses::<Add>(&world.ada, add("system:scheduler", vec![Scope::Read])).await,
        world.refuses::<Add>(&world.ada, add("user:me", Vec::new())).await,
    ];

    assert_eq!(
        told,
        [
            "user:clerk lacks the scope run and cannot give it",
            "user:clerk lacks the scope read and cannot give it",
            "user:reader lacks the scope admin that credentials.add needs",
            "user:reader lacks the scope admin that credentials.list needs",
            "no credential is given to system:scheduler: system is a part of Formwork",
            "a credential without a scope lets nobody do anything",
        ]
    );
    world.formwork.close().await;
}

#[tokio::test]
async fn no_token_stands_in_the_log_in_a_list_or_in_what_is_printed_of_it() {
    let (world, _folder) = on_sqlite().await;
    let given = world.add("user:bob", None).await;
    let id = given.credential.id;
    let rotated = world.formwork.call::<Rotate>(&world.ada, RotateParams { id, overlap: None });
    let rotated = rotated.await.unwrap();

    let events =
        world.formwork.store().read(Position(0), &Selection::default(), 100).await.unwrap();
    let listed = world.formwork.call::<List>(&world.ada, ListParams { all: true }).await.unwrap();
    let log = serde_json::to_string(&events).unwrap();
    let list = serde_json::to_string(&listed).unwrap();
    let printed = format!("{given:?} {rotated:?} {:?}", world.admits("formwork_nonsense").await);

    let kinds: Vec<_> = events.iter().map(|event| event.body.kind()).collect();
    assert_eq!(kinds, ["credential.issued", "credential.rotated"]);
    for token in [&given.token, &rotated.token] {
        let secret = token.rsplit('_').next().unwrap();
        assert!([&log, &list, &printed].iter().all(|text| !text.contains(secret)));
        let scanner = formwork_secrets::Scanner::built_in().unwrap();
        let found = scanner.scan_bytes(token.as_bytes()).unwrap().findings;
        assert_eq!(found.iter().map(|it| it.rule.as_str()).collect::<Vec<_>>(), ["formwork-token"]);
    }
    let audit = world.formwork.store().audit(RunId::of_credentials()).await.unwrap();
    assert_eq!((audit.events, audit.faults.len()), (2, 0));
    world.formwork.close().await;
}

#[tokio::test]
async fn programs_of_the_machine_have_a_token_in_a_file_of_their_owner() {
    let (world, folder) = on_sqlite().await;
    let local = async || local(&world.formwork, &world.ada).await.unwrap();

    let first = local().await.unwrap();
    let again = local().await.unwrap();
    let path = folder.path().join(".formwork/state/serve.token");
    let text = std::fs::read_to_string(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let after_it_was_open = local().await.unwrap();
    std::fs::write(&path, "rubbish").unwrap();
    let after_rubbish = local().await.unwrap();
    world.add("user:bob", None).await;
    let given = super::local(&world.formwork, &world.ada).await.unwrap();

    assert_eq!(first.path, path);
    let token = first.made.unwrap();
    assert_eq!((text, mode), (format!("{}\n", token.expose()), 0o600));
    assert!(again.made.is_none(), "the one that is there is still taken");
    assert!(world.admits(token.expose()).await.unwrap_err().contains("was revoked"));
    assert!(after_it_was_open.made.is_some() && after_rubbish.made.is_some());
    assert!(given.is_none(), "somebody has a credential now");
    world.formwork.close().await;
}
