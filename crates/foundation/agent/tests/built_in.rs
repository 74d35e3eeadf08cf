//! The agents that come with the program.

use formwork_agent::{Agents, Error, ModelChoice, Source};
use serde_json::Map;

#[test]
fn a_coder_may_end_its_task_and_a_reader_can_change_nothing() {
    let agents = Agents::built_in();

    let allowed = |name: &str| {
        let agent = agents.get(&name.parse().unwrap()).unwrap();
        agent.document().tools.allow.join(" ")
    };

    assert_eq!(
        allowed("coder"),
        "fs.read fs.list_dir fs.glob fs.grep fs.write fs.edit fs.delete git exec shell output.read skill.load start_task end_task"
    );
    let looks = "fs.read fs.list_dir fs.glob fs.grep fs.stat git output.read";
    assert_eq!(allowed("reviewer"), looks);
    assert_eq!(allowed("reader"), format!("{looks} skill.load"));
    assert_eq!(
        allowed("researcher"),
        format!("{looks} skill.load notepad.add notepad.read end_task")
    );
    // Whoever has work done must itself be allowed what it hands out.
    for (role, own) in [("coder", "start_task"), ("tester", ""), ("researcher", "fs.stat")] {
        let lead = agents.get(&"lead".parse().unwrap()).unwrap().document().tools.clone();
        let has = |name: &&str| lead.allow.iter().chain(&lead.deferred).any(|own| own == name);
        let allowed = allowed(role);
        let missing: Vec<&str> =
            allowed.split(' ').filter(|name| !has(name) && *name != own).collect();
        assert_eq!(missing, [""; 0], "{role}");
    }
}

#[test]
fn every_built_in_agent_has_a_short_prompt_and_a_model_of_the_default_category() {
    for agent in Agents::built_in().iter() {
        assert!(agent.prompt().len() < 1_200, "{}", agent.name());
        assert!(!agent.document().description.is_empty(), "{}", agent.name());
        assert_eq!(agent.document().model, ModelChoice::Category("default".parse().unwrap()));
        assert_eq!(agent.source(), &Source::BuiltIn);
    }
}

#[test]
fn what_every_agent_is_told_comes_first_and_its_own_prompt_after() {
    let agents = Agents::built_in();
    let first = |name: &str| {
        let agent = agents.get(&name.parse().unwrap()).unwrap();
        agent.fragments(&Map::new()).unwrap().map(|fragment| (fragment.name, fragment.text))
    };

    let [coder, reader] = [first("coder"), first("reader")];

    assert_eq!(coder[0], reader[0]);
    assert_eq!(coder[0].0, "agent.preamble");
    assert!(reader[1].1.starts_with("You answer questions"));
}

#[test]
fn a_variable_that_the_prompt_does_not_name_is_refused() {
    let agents = Agents::built_in();
    let reader = agents.get(&"reader".parse().unwrap()).unwrap();
    let variables = Map::from_iter([("goal".to_owned(), "x".into())]);

    let refusal = reader.system_prompt(&variables).unwrap_err();

    assert!(matches!(&refusal, Error::Prompt { agent, .. } if agent.as_str() == "reader"));
    assert_eq!(refusal.to_string(), "the prompt of agent reader cannot be composed");
}
