//! What was once let through, each tried in a real bash.

use super::*;

/// Texts that run what is not allowed, though all that they seem to run is.
#[track_caller]
fn refuses(patterns: &[&str], texts: &[&str]) {
    for denied in texts {
        assert!(text(patterns, denied).is_err(), "{denied}");
    }
}

const LISTED: [&str; 6] = ["ls *", "cargo test *", "git diff *", "env *", "timeout *", "test *"];

#[test]
fn a_function_exempts_no_command_of_its_name() {
    refuses(&LISTED, &["rm -rf src; rm() { ls; }", "if false; then rm() { ls; }; fi; rm x"]);
    refuses(&["*"], &["if false; then sudo() { ls; }; fi; sudo x", "sudo() { ls; }; sudo x"]);
}

#[test]
fn what_a_shell_does_by_itself_runs_and_swaps_nothing() {
    let texts = [
        "mapfile -c1 -C 'touch p;' a < f",
        "readarray -C 'touch p;' a < f",
        "hash -p ./evil cargo; cargo test",
        "BASH_CMDS[cargo]=./evil; cargo test",
        "let 'a[$(touch p)]=1'",
        "printf -v 'a[$(touch p)]' x",
        "read 'a[$(touch p)]' < f",
        "unset 'a[$(touch p)]'",
        "declare -a 'x=($(touch p))'",
        "getopts x 'a[$(touch p)]'",
        "test -v 'a[$(touch p)]'",
        "command test -v 'a[$(touch p)]'",
        "[ -v 'a[$(touch p)]' ]",
        "[ $x ]",
        "[ -f $x ]",
        "[ \"$@\" ]",
        "[ \"$x\" \"$y\" ]",
        "[[ -v 'a[$(touch p)]' ]]",
        "[[ 'a[$(touch p)]' -eq 0 ]]",
        "x='a[$(touch p)]'; [[ x -eq 0 ]]",
        "x='a[$(touch p)]'; [[ $x -eq 0 ]]",
        "x='a[$(touch p)]'; echo $((x))",
        "x='a[$(touch p)]'; (( x ))",
        "read x < f; echo $((x + 1))",
        "echo $(( y + 1 ))",
        "x='a[$(touch p)]'; echo ${l[x]} ${l:x}",
        "x='a[$(touch p)]'; l[x]=1",
        "a['b[$(touch p)]']=1",
        "a=( ['b[$(touch p)]']=1 )",
        "x='a[$(touch p)]'; echo ${!x}",
        "x='$(touch p)'; echo \"${x@P}\"",
        "x=1; bash -c 'echo $((x))'",
        "jobs -x rm x",
        "set -k; ls LD_PRELOAD=./x.so",
        "builtin trap 'rm x' EXIT",
        "time alias ls=rm",
    ];
    refuses(&LISTED, &texts);
    refuses(
        &["*"],
        &[
            "coproc sudo x",
            "time if sudo x; then ls; fi",
            "time ! sudo x",
            "time LD_PRELOAD=./x ls",
        ],
    );
    refuses(&["*"], &["builtin trap 'sudo x' EXIT", "command hash -p ./evil ls"]);
}

#[test]
fn a_file_given_to_a_shell_is_no_program_of_that_name() {
    denies(
        &["cargo test *", "bash *", "bash * x"],
        &[
            "bash cargo test",
            "sh cargo test",
            "bash -e cargo test",
            "bash -- cargo test",
            "timeout 5 bash cargo test",
        ],
    );
    allows(
        &["bash -e check.sh *", "timeout 5 sh x.sh"],
        &["bash -e check.sh a b", "timeout 5 sh x.sh", "nice bash -e check.sh"],
    );
    allows(&["*"], &["bash check.sh"]);
}

#[test]
fn what_starts_a_program_is_known_up_to_that_program() {
    let split = "A='5 rm -rf src'; ";
    let texts = [
        "timeout $A cargo test",
        "env -u $A cargo test",
        "timeout \"$A\" cargo test",
        "env $A cargo test",
        "nice -n $A cargo test",
        "bash $A -c ls",
        "time $A cargo test",
    ];
    refuses(&LISTED, &texts.map(|text| format!("{split}{text}")).each_ref().map(String::as_str));
    refuses(&["*"], &["A='5 sudo rm'; timeout $A x", "$A=sudo; env $A", "env -u $A ls"]);
    denies(
        &["ls *", "stat *"],
        &["flock ls rm x", "perf stat rm x", "flock f -c ls", "taskset 1 rm x"],
    );
    denies(&["*"], &["flock f -c 'sudo x'"]);
    allows(&["ls *"], &["flock f ls x", "perf stat ls x"]);
    refuses(&["npm run * --silent"], &["A='a b'; npm run $A --silent"]);
}

#[test]
fn every_way_to_set_a_variable_is_seen() {
    let texts = [
        "export \"GIT_EXTERNAL_DIFF=rm -rf src\"; git diff",
        "export 'GIT_EXTERNAL_DIFF'=x; git diff",
        "export GIT_EXTERNAL_DIFF\\=x; git diff",
        "export {GIT_EXTERNAL_DIFF,A}=x; git diff",
        "export $'GIT_EXTERNAL_DIFF=x'; git diff",
        "export \"LD_PRELOAD=./x.so\"; ls",
        "export $x; ls",
        "builtin export \"PATH=/tmp\"; ls",
        "declare -n r=PATH; r=/tmp/x; ls",
        "declare -nx r=PATH; r=/tmp/x; ls",
        "local -n r=PATH; r=/tmp/x; ls",
        "declare -i x; x='a[$(touch p)]'",
        "v=PATH; read $v <<< /tmp/x",
        "read -aPATH <<< /tmp/x",
        "printf -vPATH x",
        "printf -v PATH x",
        "v=PATH; printf -v $v x",
        "v=-vPATH; printf $v x",
        "(( PATH=5 ))",
        "echo $((PATH=5))",
        "(( PATH++ ))",
        "for ((PATH=1;;)); do ls; done",
        "getopts x PATH",
        "exec {PATH}>x",
        ": {PATH}>x",
        "wait -p PATH",
    ];
    refuses(&LISTED, &texts);
}

#[test]
fn a_program_that_lies_elsewhere_is_another() {
    let patterns = ["./run.sh *", "bash check.sh *", "ls *"];

    refuses(
        &patterns,
        &[
            "cd evil; ./run.sh",
            "cd evil && bash check.sh",
            "pushd evil; timeout 5 ./run.sh",
            "cd x; bash -c ./run.sh",
        ],
    );
    assert_eq!(text(&patterns, "./run.sh && bash check.sh; ls"), Ok(()));
    assert_eq!(text(&patterns, "cd src && ls"), Ok(()));
}

#[test]
fn an_option_among_other_letters_is_that_option() {
    let patterns =
        ["fd *", "git *", "rsync *", "tar *", "sed *", "go test *", "make *", "sort *", "find *"];
    denies(
        &patterns,
        &[
            "fd -Hx rm -rf {}",
            "git grep -nO./x pat",
            "git bisect run ./x",
            "git submodule foreach rm",
            "git difftool -x ./x",
            "git difftool --extcmd=./x",
            "git difftool",
            "git clone -c core.sshCommand=./x a b",
            "rsync -ae 'sh x' a b",
            "tar -xvI./x -f a.tar",
            "tar xI ./x",
            "sed -n '1e cmd'",
            "sed 's/a/b/e' f",
            "sed 's/a/rm x/ge' f",
            "sed 's/a/b/;1e cmd' f",
            "sed 's/a\\/b/e/' f",
            "sed -n '/x/w out' f",
            "sed p f -e '1e cmd'",
            "sed -f script f",
            "go test -exec ./x",
            "go test -exec=./x",
            "go test --toolexec ./x",
            "make test SHELL=./x",
            "make -f other",
            "sort -no src/lib.rs f",
        ],
    );
    allows(
        &patterns,
        &[
            "fd -H pat",
            "git grep -n pat",
            "rsync -avz a b",
            "tar -xvf a.tar",
            "tar xvf a.tar",
            "sed -n '1,5p' f",
            "sed -i -E 's/a+/b/g' f",
            "sed 's|a|b|' f",
            "go test -run TestX ./...",
            "make -j4 test",
            "sort -n f",
        ],
    );
    denies(&["fd -Hx *", "ls *"], &["fd -Hx rm -rf {}"]);
    allows(&["fd -Hx *", "ls *"], &["fd -Hx ls"]);
}

#[test]
fn words_behind_a_redirection_are_the_commands() {
    refuses(
        &["find *", "ls *", "git status", "cat *"],
        &[
            "find . >o -exec rm -rf src {} +",
            "find . 2>o >p -delete",
            "find . >&- -delete",
            "find . >o -del\"ete\"",
            "find . <<E -delete\nE",
            "find . <<E >o -delete\nE",
            "ls | find . >o -delete",
            "ls && find . >o -delete",
            ">o find . -delete",
            "echo $(<o find . -delete)",
            "echo $(<o touch p)",
            "git status >o --porcelain",
            "{ ls; } >o x",
        ],
    );
    refuses(&["*"], &["timeout 5 >o sudo x", "ls; find . >o -exec sudo x {} +"]);
    refuses(
        &[],
        &[
            "test >/dev/null -v 'a[$(touch p)]'",
            "printf >/dev/null -v 'a[$(touch p)]' x",
            "read </dev/null 'a[$(touch p)]'",
            "test <<E -v 'a[$(touch p)]'\nE",
            "export >o \"LD_PRELOAD=./x\"",
        ],
    );
    for allowed in [
        "ls 2>/dev/null -la | cat",
        "echo >&2 \"no such thing\"",
        "ls || echo >&2 no",
        "cat >o <<E\na\nE",
        "cat <<'E' >o -\na $(b) `c`\nE",
        "git status 2>&1",
    ] {
        assert_eq!(text(&["ls *", "cat *", "git status"], allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn what_a_shell_reads_otherwise_than_the_grammar_is_not_judged() {
    let texts = [
        ": <<E\n`touch p`\nE",
        ": <<E\n\\\\`touch p`\nE",
        "echo `echo \\`touch p\\``",
        "echo `echo \"\\$(touch p)\"`",
        "echo `echo '`; touch p; echo `'`",
        "echo `ls # `; touch p; echo `\n`",
        "x=$'a\\\\';touch p #'",
        "echo a\r#;touch p",
        "echo a\x0b#;touch p",
        "echo a\x0c#;touch p",
        "echo \\\r\ntouch p",
        "ls\r/x",
        "ls\\\t/x",
        "ls\\\n/x",
        "\\ ls",
        "find . -del\\\nete",
        "echo \"a\"#;touch p",
        "echo $(ls)#;touch p",
        "cat <<E\n E\n: '\nE\ntouch p #'",
        "cat <<E\nEX\n: '\nE\ntouch p #'",
        "cat <<E\nx\\\nE\n: '\nE\ntouch p #'",
        "cat <<E\nE\\\n\ntouch p\nE",
        "cat <<'E'\nx\\\nE\ntouch p\nE",
        "cat <<E'F'\n$(touch p)\nEF",
        "echo \"${x:-'}\"; touch p; echo \"'}\"",
        "x='a[$(touch p)]'; echo \"$[x]\"",
        "x='a[$(touch p)]'; cat <<E\n$[x]\nE",
        "${ touch p; }",
        "ls =~ \ntouch p\n; }",
        "echo ${ touch p; }",
    ];
    refuses(&["ls *", "cat *", "find *", "./x *", "/x *"], &texts);
    for allowed in [
        "cat > README.md <<EOF\n# A\n\n\\`code\\` and $x, $(ls) and ${y:-z}\n\n  EOF is no end\nEOF\nls",
        "cat <<-E\n\tx\n\tE\nls",
        "ls \\\n  -la \\\n  -h",
        "ls &&\\\n  ls",
        "echo `ls`; echo \"`ls`\"",
        "echo $'a\\'b' # and so on: `x`",
        "echo ${x//\\//_} \"${y%.*}\" ${#x} \"${x:-none}\"",
        "grep -n 'a$[b]' x; grep foo$ x",
        "(# nothing\nls)",
    ] {
        assert_eq!(text(&["ls *", "cat *", "grep *"], allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn what_only_bash_knows_is_nothing_to_other_shells() {
    let texts = [
        "[[ x || rm -rf src ]]",
        "touch=1 p=1 a=1; ((touch -a - p))",
        "function ls { ls; }",
        "echo $'a'",
        "ls &>x",
        "ls &>>x",
        "a=(1 2)",
        "for ((i=0; i<3; i++)); do ls; done",
        "ls <(ls)",
        "cat <<<x",
        "declare x=1",
        "pushd x",
    ];
    for denied in texts {
        for shell in ["sh", "dash", "ash", "/bin/sh"] {
            let argv = [shell, "-c", denied].map(str::to_owned);
            let patterns = CommandPatterns::parse(["ls *", "cat *", "x *"]).unwrap();
            let judged = patterns.check(&argv, Meaning::default());
            assert!(judged.is_err(), "{shell}: {denied}");
        }
    }
    denies(&["*"], &["ksh -c ls", "mksh -c ls"]);
    allows(&["ls *"], &["sh -c 'ls -l | ls 2>&1 && [ -f \"$x\" ] || echo $((1 + 2))'"]);
}

#[test]
fn a_variable_that_a_shell_reckons_is_set_to_numbers_alone() {
    let names = [
        "RANDOM",
        "SRANDOM",
        "OPTIND",
        "HISTCMD",
        "SECONDS",
        "LINENO",
        "BASHPID",
        "EPOCHSECONDS",
        "BASH_ARGV0",
        "UID",
        "SHLVL",
        "BASH_MONOSECONDS",
        "_",
        "REPLY",
        "OPTARG",
        "DIRSTACK",
        "MAPFILE",
        "PIPESTATUS",
    ];
    for name in names {
        let ways = [
            "N=1; read N <<< 'a[$(touch p)]'; echo $((N))",
            "N=1; ((N))",
            "N='a[$(touch p)]'; ((N))",
        ];
        let ways = ways.map(|way| way.replace('N', name));
        let is_number = ["RANDOM", "SRANDOM", "OPTIND", "SECONDS"].contains(&name);
        refuses(&LISTED, &ways.each_ref().map(String::as_str)[..if is_number { 1 } else { 3 }]);
        if matches!(name, "_" | "REPLY" | "OPTARG") {
            continue;
        }
        let ways = [
            "N='a[$(touch p)]'",
            "N+='a[$(touch p)]'",
            "N='a[$(touch p)]' ls",
            "N='a[$(touch p)]' :",
            "env N='a[$(touch p)]' ls",
            "export N='a[$(touch p)]'",
            "declare N='a[$(touch p)]'",
            "x='a[$(touch p)]'; export N=$x",
            "x='a[$(touch p)]'; N=$x",
            "printf -v N %s 'a[$(touch p)]'",
            "read N <<< 'a[$(touch p)]'",
            "for N in 'a[$(touch p)]'; do :; done",
            "select N in 'a[$(touch p)]'; do :; done",
            "getopts a: N -a 'a[$(touch p)]'",
            "mapfile N <<< 'a[$(touch p)]'",
            "let N='a[$(touch p)]'",
            "unset N; echo ${N:='a[$(touch p)]'}",
            "coproc N { ls; }",
            "export N; N='a[$(touch p)]'",
        ];
        let ways = ways.map(|way| way.replace('N', name));
        let ways = ways.each_ref().map(String::as_str);
        refuses(&LISTED, &ways);
        refuses(&["*"], &ways);
    }
    refuses(
        &["*"],
        &[
            "declare -i x='a[$(touch p)]'",
            "typeset -i x; x='a[$(touch p)]'",
            "x=1; x+='a[$(touch p)]'; ((x))",
            "x=1; command export 'x+=y'; ((x))",
            "REPLY=1; read <<< 'a[$(touch p)]'; echo $((REPLY))",
            "OPTARG=1; getopts a: v -a 'a[$(touch p)]'; ((OPTARG))",
            "_=1; : 'a[$(touch p)]'; ((_))",
            "DIRSTACK=1; pushd 'a[$(touch p)]'; ((DIRSTACK))",
        ],
    );
    for allowed in [
        "SECONDS=0; RANDOM=42; OPTIND=1; ls",
        "while IFS= read -r line; do echo \"$line\"; done < f",
        "IFS=, read -r a b <<< 1,2; echo $a $REPLY",
        "for _ in 1 2; do ls; done; read -r _ x < f",
        "ROOT=$PWD; FILES='a b'; ls $ROOT $FILES",
        "while getopts ab: opt; do case $opt in b) echo \"$OPTARG\";; esac; done",
    ] {
        assert_eq!(text(&LISTED, allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn a_list_is_read_once() {
    let texts = [
        "declare -a x='($(touch p))'",
        "typeset -a x='($(touch p))'",
        "readonly -a x='($(touch p))'",
        "export -a x='($(touch p))'",
        "f() { local -a x='($(touch p))'; }; f",
        "declare -A x='([a]=$(touch p))'",
        "declare -ga x=\"(\\$(touch p))\"",
        "declare -a x=($'(')'$(touch p))'",
        "y='($(touch p))'; declare -a x=\"$y\"",
        "y='($(touch p))'; declare \"-a\" x=$y",
        "x=(1); declare x='($(touch p))'",
        "y='($(touch p))'; x=(1); export x=\"$y\"",
        "y='($(touch p))'; x[0]=1; declare x=\"$y\"",
        "y='($(touch p))'; declare -a x; declare x=\"$y\"",
        "y='($(touch p))'; command declare -a x; declare x=\"$y\"",
        "y='($(touch p))'; read -a x <<< 1; declare x=\"$y\"",
        "y='($(touch p))'; read -ra x <<< 1; readonly x+=\"$y\"",
        "command declare -a x='($(touch p))'",
        "y='($(touch p))'; builtin declare -a x=\"$y\"",
    ];
    refuses(&LISTED, &texts);
    refuses(&["*"], &texts);
    for allowed in [
        "declare -a x=(1 \"$(ls)\" '$(touch p)'); ls \"${x[@]}\"",
        "y=$(ls); export z=\"$y\"; declare w=$y; readonly v='a b'",
        "x=(1 2); x+=(3); local y=\"${x[0]}\"",
        "declare -a x; x=($(ls)); declare -A m; read -ra words <<< 'a b'",
    ] {
        assert_eq!(text(&LISTED, allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn what_is_translated_is_not_judged() {
    let texts = [
        "echo $\"a\"",
        "TEXTDOMAIN=x TEXTDOMAINDIR=. ; echo $\"a\"",
        "echo a$\"b\"c",
        "x=$\"b\"",
        "ls <<< $\"b\"",
        "[[ $\"b\" == c ]]",
        "case $\"b\" in $\"b\") ls;; esac",
        "a=($\"b\")",
        "echo ${x:-$\"b\"}",
        "echo \"$(echo $\"b\")\"",
        "echo \"a$\"$\"b\"",
    ];
    refuses(&["*"], &texts);
    for allowed in
        ["grep -c \"a$\" f", "echo '$\"b\"' # $\"b\"", "echo \\$\"b\"", "echo \"5$\" \"$\""]
    {
        assert_eq!(text(&["*"], allowed), Ok(()), "{allowed}");
    }
}

#[test]
fn a_program_is_given_no_variable_that_nobody_knows() {
    let names = [
        "MAKEFILES",
        "GNUMAKEFLAGS",
        "PYTHONUSERBASE",
        "RUSTFLAGS",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "OPENSSL_CONF",
        "GOENV",
        "GOFLAGS",
        "PERLLIB",
        "LUA_INIT",
        "BUNDLE_GEMFILE",
        "LOCPATH",
        "TEXTDOMAIN",
        "TEXTDOMAINDIR",
        "NODE_OPTIONS",
        "NODE_PATH",
        "npm_config_script_shell",
        "NPM_CONFIG_PREFIX",
        "CARGO_HOME",
        "CARGO_TARGET_DIR",
        "GIT_SSH",
        "JAVA_TOOL_OPTIONS",
        "MAVEN_OPTS",
        "DOTNET_STARTUP_HOOKS",
        "RUBYOPT",
        "SOME_TOOLS_PLUGIN",
        "http_proxy",
        "PATH",
        "PS4",
        "BASH_ENV",
    ];
    for name in names {
        let ways = [
            format!("{name}=x cargo test"),
            format!("LANG=C {name}=$x cargo test"),
            format!("export {name}=x; cargo test"),
            format!("{name}=x; export {name}; cargo test"),
            format!("declare -x {name}=x; cargo test"),
            format!("command export {name}=x; cargo test"),
            format!("env {name}=x cargo test"),
            format!("env -i {name}=x timeout 5 cargo test"),
            format!("timeout 5 env {name}=x cargo test"),
            format!("{name}=x command cargo test"),
        ];
        refuses(&LISTED, &ways.each_ref().map(String::as_str));
    }
    refuses(
        &LISTED,
        &["set -a; X_TOOL=x; cargo test", "set -o allexport; ls", "env A=$x cargo test"],
    );
    for allowed in [
        "LANG=C LC_ALL=C.UTF-8 TZ=UTC CI=1 NO_COLOR=1 RUST_LOG=\"$level\" RUST_BACKTRACE=1 cargo test",
        "export CI=true DEBUG=1 mine=2; cargo test",
        "env RUST_LOG=debug timeout 5 cargo test; timeout 5 env TZ=UTC ls",
        "seed=$(ls) cargo test",
    ] {
        assert_eq!(text(&LISTED, allowed), Ok(()), "{allowed}");
    }
    let patterns = ["env CARGO_HOME=.c cargo test *", "env X_Y=1 *", "ls *", "make"];
    for allowed in [
        "CARGO_HOME=.c cargo test -q",
        "env CARGO_HOME=.c cargo test",
        "X_Y=1 ls -l | X_Y=1 make",
        "export X_Y=1; ls",
    ] {
        assert_eq!(text(&patterns, allowed), Ok(()), "{allowed}");
    }
    refuses(
        &patterns,
        &[
            "CARGO_HOME=.c make",
            "CARGO_HOME=.d cargo test",
            "X_Y=2 ls",
            "X_Y=$x ls",
            "cargo test",
            "X_Y=1 rm x",
        ],
    );
    let why = text(&LISTED, "MAKEFILES=x cargo test").unwrap_err();
    assert!(why.contains("MAKEFILES") && why.contains("env MAKEFILES=VALUE PROGRAM *"), "{why}");
}

#[test]
fn a_pattern_means_the_top_of_the_workspace() {
    let patterns = [
        "make test",
        "python3 tests/t.py",
        "cargo test *",
        "git *",
        "ls *",
        "sed *",
        "sed -f x.sed f",
        "find *",
    ];
    refuses(
        &patterns,
        &[
            "cd src && make test",
            "cd src; python3 tests/t.py",
            "(cd src && cargo test)",
            "pushd src && git status",
            "cd src; sed -f x.sed f",
            "cd src; find . -exec make test",
            "cd src; timeout 5 make test",
            "bash -c 'cd src; make test'",
            "cd src; bash -c 'make test'",
        ],
    );
    for allowed in
        ["make test && python3 tests/t.py", "cd src && ls && sed -n 1,5p f && find . -name x"]
    {
        assert_eq!(text(&patterns, allowed), Ok(()), "{allowed}");
    }
    let judged = |patterns: &[&str], folder: &str, words: &[&str]| {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let meaning = Meaning { folder: Some(folder), within: None, roots: None };
        CommandPatterns::parse(patterns).unwrap().check(&argv, meaning)
    };
    for words in [["make", "test"], ["python3", "tests/t.py"], ["/usr/bin/make", "test"]] {
        assert!(judged(&patterns, "src", &words).is_err(), "{words:?}");
    }
    assert_eq!(judged(&patterns, "src", &["ls", "-l"]), Ok(()));
    let there = ["env -C web make *", "make test", "env -C ./other/ *"];
    assert_eq!(judged(&there, "web/", &["make", "test", "-k"]), Ok(()));
    assert_eq!(judged(&there, "./web", &["timeout", "5", "make"]), Ok(()));
    assert!(judged(&there, "web", &["bash", "-c", "make x; make y"]).is_ok());
    for (folder, words) in [
        ("web/x", ["make", "test"]),
        ("src", ["make", "test"]),
        ("other", ["make", "x"]),
        ("web", ["npm", "test"]),
        ("web", ["bash", "make"]),
    ] {
        assert!(judged(&there, folder, &words).is_err(), "{folder} {words:?}");
    }
    let why = judged(&patterns, "src", &["make", "test"]).unwrap_err();
    assert!(why.contains("`env -C FOLDER make *`"), "{why}");
}

#[test]
fn a_wildcard_covers_no_verb_of_git_that_runs_what_it_is_told() {
    denies(
        &["git *"],
        &[
            "git remote-ext origin 'sh -c x'",
            "git upload-pack .",
            "git clone 'ext::sh -c x' y",
            "git fetch ext::x",
            "git pull ext::x",
            "git push fd::7",
            "git ls-remote 'ext::sh -c x'",
            "git remote add x 'ext::sh -c x'",
            "git submodule add ext::x",
            "git bisect run ./x",
            "git bisect visualize",
            "git rebase --exec ./x HEAD~1",
            "git rebase --exe=./x HEAD~1",
            "git rebase -x ./x HEAD~1",
            "git submodule foreach ./x",
            "git submodule --quiet foreach ./x",
            "git filter-branch --tree-filter ./x",
            "git difftool",
            "git mergetool",
            "git config alias.x '!./x'",
            "git config core.pager ./x",
            "git config --global core.pager ./x",
            "git instaweb",
            "git send-email x",
            "git help log",
            "git log --help",
            "git grep -O./x pat",
            "git archive --remote=ext::x HEAD",
            "git archive --rem x HEAD",
            "git archive --exec=./x HEAD",
            "git ls-remote --upload-pack=./x .",
            "git ls-remote --exec=./x .",
            "git lfs pull",
            "git anything",
            "git -C sub status",
            "git --namespace x status",
            "git -p log",
            "git --exec-path=. status",
            "git merge -s evil x",
            "git merge -sevil x",
            "git merge -nsevil x",
            "git merge --strategy=evil x",
            "git pull --strat evil",
            "git rebase -s evil x",
            "git cherry-pick --strategy=evil x",
            "git clone -qc core.sshCommand=x a b",
            "git clone --co=core.sshCommand=x a b",
            "git daemon",
            "git credential fill",
            "git maintenance start",
        ],
    );
    denies(
        &["git -C sub *", "git --no-pager *"],
        &["git -C sub bisect run ./x", "git --no-pager evil"],
    );
    allows(
        &["git *"],
        &[
            "git status --short",
            "git --no-pager log -p -3",
            "git --version",
            "git diff HEAD -- src",
            "git config --get user.name",
            "git config --list",
            "git bisect start",
            "git bisect good v1",
            "git submodule update --init",
            "git merge -s ours x",
            "git merge --strategy=ort -X theirs --squash --stat x",
            "git commit -s -m 'a::b'",
            "git stash",
            "git worktree list",
            "git fetch origin a:b",
            "git clone --depth 1 https://example.com/x",
            "git branch --remotes",
            "git rebase main",
        ],
    );
    allows(
        &["git lfs *", "git config user.name *", "git bisect run ./test"],
        &["git lfs pull", "git config user.name x", "git bisect run ./test"],
    );
    allows(&["git -C sub status *"], &["git -C sub status"]);
}

#[test]
fn a_text_that_goes_to_a_folder_first_is_judged_by_what_may_run_there() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    for folder in ["web/x", "other", "with space"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("other", root.join("linked")).unwrap();
    std::os::unix::fs::symlink("/tmp", root.join("out")).unwrap();
    let roots = std::collections::BTreeSet::from([root]);
    let patterns = [
        "env -C web make *",
        "env -C ./web/x/ cargo test *",
        "env -C linked make *",
        "env -C out make *",
        "env -C gone make *",
        "env -C 'with space' make *",
        "ls *",
        "cargo test *",
        "make top",
    ];
    let patterns = CommandPatterns::parse(patterns).unwrap();
    let judged = |text: &str, folder: Option<&str>| {
        let argv = ["bash", "-c", text].map(str::to_owned);
        patterns.check(&argv, Meaning { folder, within: None, roots: Some(&roots) })
    };

    for text in [
        "cd web && make test",
        "cd ./web/ && make a && ls && make b | ls",
        "cd web && (make a; ls)",
        "cd web/x && cargo test --lib;",
        "cd 'with space' && make",
        "cd with\\ space && make",
        "cd web && timeout 5 make",
    ] {
        assert_eq!(judged(text, None), Ok(()), "{text}");
    }
    for text in [
        "cd web && make a; make b",
        "cd web && make a || make b",
        "cd web || make a",
        "cd web; make a",
        "cd web & make a",
        "cd web | make a",
        "cd web && cd x && make a",
        "cd web && (cd x && make a)",
        "cd web && make top\nmake a",
        "cd -P web && make a",
        "cd web x && make a",
        "CDPATH=other cd web && make a",
        "cd web >x && make a",
        "ls && cd web && make a",
        "! cd web && make a",
        "cd $x && make a",
        "cd we* && make a",
        "cd web/../other && make a",
        "cd ../web && make a",
        "cd ~/web && make a",
        "cd linked && make a",
        "cd linked/../web && make a",
        "cd out && make a",
        "cd gone && make a",
        "cd other && make a",
        "cd web && make a && cargo test",
        "cd web && cargo test",
        "cd web && ./make",
        "cd web && bash -c 'cd x && cargo test'",
    ] {
        assert!(judged(text, None).is_err(), "{text}");
    }
    // Where a call runs in another folder, the one that its text goes to is below that.
    assert!(judged("cd web && make a", Some("other")).is_err());
    assert!(judged("cd x && cargo test", Some("web")).is_err());
    let why = judged("cd web && cargo test", None).unwrap_err();
    assert!(why.contains("`env -C FOLDER cargo *`") && why.contains("`cd FOLDER &&`"), "{why}");
}
