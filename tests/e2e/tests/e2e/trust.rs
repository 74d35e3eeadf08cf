//! What a project says takes effect only once a person has looked at it.

use crate::{
    answers::says,
    world::{Ended, World, end_of},
};

async fn bare(world: &World, arguments: &[&str]) -> Ended {
    end_of(world.bare(arguments).spawn().unwrap()).await
}

#[tokio::test]
async fn a_projects_config_has_no_effect_until_it_is_trusted_and_after_a_change() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), says("It was trusted."));
    let config = world.providers(&world.server.url());
    world.repo.write("formwork.toml", &config).unwrap();

    let before = bare(&world, &["run", "-m", "Go."]).await;
    let shown = bare(&world, &["config", "show"]).await;
    let nothing_sent = world.server.requests().is_empty();
    let trusted = bare(&world, &["trust"]).await;
    let during = bare(&world, &["run", "-m", "Go."]).await;
    world.repo.write("formwork.toml", config + "# A comment is a change too.\n").unwrap();
    let after = bare(&world, &["run", "-m", "Go."]).await;

    for refused in [&before, &after] {
        assert_eq!(refused.code, Some(3), "{refused:#?}");
        assert!(refused.stderr.contains("is not trusted"), "{refused:#?}");
        assert!(refused.stderr.contains("providers.one.base_url"), "{refused:#?}");
        assert!(refused.stderr.contains("formwork trust"), "{refused:#?}");
    }
    assert!(nothing_sent);
    assert!(!shown.stdout.contains(&world.server.url()), "{shown:#?}");
    assert_eq!(trusted.code, Some(0), "{trusted:#?}");
    assert_eq!(during.code, Some(0), "{during:#?}");
    assert!(during.stdout.contains("It was trusted."), "{during:#?}");
    assert_eq!(world.server.requests().len(), 1);
}

#[tokio::test]
async fn a_trusted_config_is_not_trusted_in_another_folder_and_trust_can_be_taken_back() {
    let world = World::new().await;
    let config = world.providers(&world.server.url());
    world.repo.write("formwork.toml", &config).unwrap();
    world.repo.write("other/formwork.toml", &config).unwrap();

    let trusted = bare(&world, &["trust"]).await;
    let elsewhere = bare(&world, &["-C", "other", "run", "-m", "Go."]).await;
    let revoked = bare(&world, &["trust", "--revoke"]).await;
    let after = bare(&world, &["run", "-m", "Go."]).await;

    assert_eq!((trusted.code, revoked.code), (Some(0), Some(0)), "{trusted:#?} {revoked:#?}");
    assert_eq!((elsewhere.code, after.code), (Some(3), Some(3)), "{elsewhere:#?} {after:#?}");
    assert!(world.server.requests().is_empty());
}
