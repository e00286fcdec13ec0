mod environment;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::patience::{SUITE_PATIENCE, watch};

/// Serves `size` ranks over socket pairs until all have closed; returns the ranks' ends.
fn serve(size: usize) -> (Vec<UnixStream>, thread::JoinHandle<Vec<ServerEvent>>) {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..size).map(|_| UnixStream::pair().unwrap()).unzip();
    let served = thread::spawn(move || {
        let mut server = Server::new("test", &Mapping(vec![0; size]));
        let (lines, incoming) = std::sync::mpsc::channel();
        for (rank, stream) in ours.iter().enumerate() {
            let (lines, stream) = (lines.clone(), BufReader::new(stream.try_clone().unwrap()));
            thread::spawn(move || {
                stream.split(b'\n').map_while(Result::ok).try_for_each(|line| lines.send((rank, line)))
            });
        }
        drop(lines);
        let mut events = Vec::new();
        for (rank, line) in incoming {
            server.handle_line(rank, &line);
            while let Some((rank, reply)) = server.poll_reply() {
                let _ = (&ours[rank]).write_all(reply.as_bytes());
            }
            events.extend(std::iter::from_fn(|| server.poll_event()));
        }
        events
    });
    (theirs, served)
}

/// Runs `part` as each rank of a job of `size`.
fn job<T: Send + 'static>(
    size: usize,
    part: impl Fn(Launch) -> T + Send + Sync + 'static,
) -> (Vec<T>, Vec<ServerEvent>) {
    watch(&format!("a launch of {size}"), SUITE_PATIENCE);
    let (streams, served) = serve(size);
    let part = std::sync::Arc::new(part);
    let ranks: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(rank, stream)| {
            let part = std::sync::Arc::clone(&part);
            thread::spawn(move || part(Launch::Pmi(Client::start(stream, rank, size).unwrap())))
        })
        .collect();
    let told = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    (told, served.join().unwrap())
}

#[test]
fn everybody_learns_what_everybody_said() {
    let said = |rank: usize, round: usize| format!("{rank} of round {round}: {}", "=; %é\n".repeat(rank * 300));
    let (told, events) = job(5, move |mut launch| {
        let rank = launch.rank();
        let rounds: Vec<_> = (0..3).map(|round| launch.exchange(&said(rank, round)).unwrap()).collect();
        launch.finalize().unwrap();
        rounds
    });
    for rounds in told {
        for (round, texts) in rounds.iter().enumerate() {
            let wanted: Vec<_> = (0..5).map(|rank| said(rank, round)).collect();
            assert_eq!(*texts, wanted);
        }
    }
    assert_eq!(events, []);
}

/// Answers rank 0 up to a line.
fn serve_until(server: &mut Server, stream: &UnixStream, last: &[u8]) {
    for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        server.handle_line(0, &line);
        let replies: String = std::iter::from_fn(|| server.poll_reply()).map(|(_, reply)| reply).collect();
        (&*stream).write_all(replies.as_bytes()).unwrap();
        if line == last {
            return;
        }
    }
}

#[test]
fn news_of_many_ranks_are_told_each_and_leave_later_answers_whole() {
    watch("a launch with many deaths", SUITE_PATIENCE);
    // More than is read at once, each: before anybody asks for it, and after.
    let (before, all) = (1_000, 5_000);
    let (theirs, ours) = UnixStream::pair().unwrap();
    let mut server = Server::new("test", &Mapping(vec![0; all]));
    (1..before).for_each(|rank| server.handle_gone(rank));
    let (client, mut news) = thread::scope(|scope| {
        scope.spawn(|| serve_until(&mut server, &ours, b"cmd=watch_ranks"));
        let mut client = Client::start(theirs, 0, all).unwrap();
        let news = client.watch_ranks().unwrap();
        (client, news)
    });
    assert_eq!((1..before).map_while(|_| news.poll()).collect::<Vec<_>>(), (1..before).collect::<Vec<_>>());
    (before..all).for_each(|rank| server.handle_gone(rank));
    let lines: String = std::iter::from_fn(|| server.poll_reply()).map(|(_, line)| line).collect();
    (&ours).write_all(lines.as_bytes()).unwrap();
    assert_eq!(news.poll(), Some(before));
    thread::scope(|scope| {
        scope.spawn(|| serve_until(&mut server, &ours, b"cmd=finalize"));
        client.finalize().unwrap();
    });
}

#[test]
fn news_among_which_an_answer_comes_are_told_later() {
    watch("a question among news", SUITE_PATIENCE);
    let (theirs, ours) = UnixStream::pair().unwrap();
    let mut server = Server::new("test", &Mapping(vec![0; 4]));
    thread::scope(|scope| {
        scope.spawn(|| {
            serve_until(&mut server, &ours, b"cmd=watch_ranks");
            let mut question = String::new();
            BufReader::new(&ours).read_line(&mut question).unwrap();
            server.handle_gone(2);
            server.handle_line(0, question.trim_end().as_bytes());
            server.handle_gone(3);
            let lines: String = std::iter::from_fn(|| server.poll_reply()).map(|(_, line)| line).collect();
            (&ours).write_all(lines.as_bytes()).unwrap();
        });
        let mut client = Client::start(theirs, 0, 4).unwrap();
        let mut news = client.watch_ranks().unwrap();
        assert_eq!(client.appnum().unwrap(), Some(0));
        assert_eq!([(); 3].map(|()| news.poll()), [Some(2), Some(3), None]);
    });
}

#[test]
fn a_rank_that_replaces_a_value_of_the_launchers_harms_nobody() {
    let mut server = Server::new("job", &Mapping(vec![0; 2]));
    let lines = [
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=put kvsname=job key=PMI_process_mapping value=x",
        "cmd=get kvsname=job key=PMI_process_mapping",
    ];
    lines.iter().for_each(|line| server.handle_line(0, line.as_bytes()));
    let last = std::iter::from_fn(|| server.poll_reply()).last().unwrap().1;
    assert!(last.contains("value=x") && server.poll_event().is_none(), "{last}");
}

#[test]
fn a_launcher_tells_many_values_at_once_and_all_of_them_in_the_end() {
    let mut server = Server::new("job", &Mapping(vec![0; 200]));
    server.handle_line(0, b"cmd=init pmi_version=1 pmi_subversion=1");
    (0..200).for_each(|rank| {
        let value = format!("{rank}:{}", "x".repeat(1000));
        server.handle_line(0, format!("cmd=put kvsname=job key=k-{rank}-0 value={value}").as_bytes());
    });
    std::iter::from_fn(|| server.poll_reply()).for_each(drop);
    let (mut told, mut asked) = (Vec::<usize>::new(), 0);
    while told.len() < 200 {
        server.handle_line(0, format!("cmd=get_many kvsname=job keys=k-*-0 from={}", told.len()).as_bytes());
        let (_, line) = server.poll_reply().unwrap();
        let line = Line::parse(line.as_bytes()).unwrap();
        let Ok(Some(Reply::ManyResult(Ok(values)))) = Reply::parse(&line) else { panic!("{line:?}") };
        told.extend(values.split(';').map(|value| value.split_once(':').unwrap().0.parse::<usize>().unwrap()));
        asked += 1;
    }
    assert!(told.into_iter().eq(0..200) && (2..20).contains(&asked), "{asked}");
    for beyond in ["kvsname=job keys=k-*-0 from=200", "kvsname=job keys=k-*-1 from=0", "kvsname=job keys=k from=0"] {
        server.handle_line(0, format!("cmd=get_many {beyond}").as_bytes());
        let (_, line) = server.poll_reply().unwrap();
        assert!(line.contains("rc=-1"), "{line}");
    }
}

#[test]
fn who_is_alone_needs_nobody() {
    let mut launch = Launch::Alone;
    assert_eq!((launch.rank(), launch.size()), (0, 1));
    assert_eq!(launch.exchange("x").unwrap(), ["x"]);
    launch.barrier().unwrap();
    launch.finalize().unwrap();
}

#[test]
fn an_abort_reaches_the_launcher_with_its_code_and_reason() {
    let endless = "é".repeat(2_000);
    for (asked, told) in [("out of\ncheese, Käse", "out of cheese, Käse"), (&endless, &endless[..900])] {
        let asked = asked.to_owned();
        let (_, events) = job(2, move |launch| {
            if launch.rank() == 1 {
                launch.to_abort().unwrap().ask(7, &asked);
            }
        });
        assert_eq!(events, [ServerEvent::Abort { rank: 1, code: 7, why: told.to_owned() }]);
    }
}

#[test]
fn the_reason_of_an_abort_is_all_that_is_said() {
    let why = "solver: rank=3 has size=0 = nothing";
    let (_, events) = hear(&[&format!("cmd=abort exitcode=9 error_msg={why}\n")]);
    assert_eq!(events, [ServerEvent::Abort { rank: 0, code: 9, why: why.to_owned() }]);
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_sent() {
    let (told, events) = job(1, |launch| {
        let Launch::Pmi(mut client) = launch else { unreachable!() };
        let long = "x".repeat(1025);
        let refused =
            [("k", "two words"), ("", "v"), ("k", ""), ("k\n", "v"), ("k", long.as_str()), (long.as_str(), "v")];
        refused.iter().all(|(key, value)| matches!(client.put(key, value), Err(PmiError::Unfit(..))))
    });
    assert_eq!((told, events), (vec![true], vec![]));
}

#[test]
fn what_nobody_put_is_not_found() {
    let (told, _) = job(1, |launch| {
        let Launch::Pmi(mut client) = launch else { unreachable!() };
        client.put("known", "value=with=signs").unwrap();
        (client.get("unknown").unwrap(), client.get("known").unwrap(), client.get("PMI_process_mapping").unwrap())
    });
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(told, [(None, some("value=with=signs"), some("(vector,(0,1,1))"))]);
}

#[test]
fn a_launcher_that_ends_is_noticed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    assert!(matches!(Client::start(theirs, 0, 1), Err(PmiError::Gone | PmiError::Io(..))));
}

/// Whoever is at the other end of an inherited descriptor.
#[test]
fn what_a_launcher_says_tells_a_terminal_nothing() {
    for (says, shown) in [
        ("\x1b[2J\n", "the launcher's answer `\\u{1b}[2J` names no command"),
        ("cmd=put_result rc=-1 msg=\x1b[2J\n", "with `cmd=put_result rc=-1 msg=\\u{1b}[2J`"),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(says.as_bytes()).unwrap();
        let text = Client::start(theirs, 0, 1).unwrap_err().to_string();
        assert!(text.contains(shown), "{text}");
    }
}

#[test]
fn a_mapping_is_told_as_runs_of_nodes() {
    for (nodes, text) in [
        (&[0, 0, 0, 0][..], "(vector,(0,1,4))"),
        (&[0, 0, 1, 1, 2, 2], "(vector,(0,3,2))"),
        (&[0, 1, 2, 3], "(vector,(0,4,1))"),
        (&[0, 0, 1], "(vector,(0,1,2),(1,1,1))"),
        (&[0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))"),
    ] {
        assert_eq!(Mapping(nodes.to_vec()).to_string(), text);
    }
}

/// What one rank of a job of two hears and what its launcher notices, for a conversation in lines.
fn hear(lines: &[&str]) -> (Vec<String>, Vec<ServerEvent>) {
    let mut server = Server::new("job", &Mapping(vec![0, 0]));
    lines.iter().for_each(|line| server.handle_line(0, line.as_bytes()));
    let replies = std::iter::from_fn(|| server.poll_reply()).map(|(_, line)| line.trim_end().to_owned()).collect();
    (replies, std::iter::from_fn(|| server.poll_event()).collect())
}

/// The lines that MPICH 4.0's and Slurm 22.05's clients send, word by word.
#[test]
fn mpichs_client_is_answered() {
    let (replies, events) = hear(&[
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=get_maxes\n",
        "cmd=get_appnum\n",
        "cmd=get_my_kvsname\n",
        "cmd=get kvsname=job key=PMI_process_mapping\n",
        "cmd=put kvsname=job key=P0-businesscard value=description#host$port#1$ifname#10.0.0.1$\n",
        "cmd=get kvsname=job key=P0-businesscard\n",
        "cmd=get kvsname=other key=P0-businesscard\n",
        "cmd=get_universe_size\n",
        "cmd=finalize\n",
    ]);
    assert_eq!(events, []);
    assert_eq!(
        replies,
        [
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
            "cmd=appnum appnum=0",
            "cmd=my_kvsname kvsname=job",
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))",
            "cmd=put_result rc=0 msg=success",
            "cmd=get_result rc=0 msg=success value=description#host$port#1$ifname#10.0.0.1$",
            "cmd=get_result rc=-1 msg=key_not_found value=unknown",
            "cmd=universe_size size=2",
            "cmd=finalize_ack",
        ]
    );
}

#[test]
fn spawning_is_refused_once_its_last_line_came() {
    let spawn = |so_far| format!("mcmd=spawn\nnprocs=1\nexecname=cmd=put\ntotspawns=2\nspawnssofar={so_far}\nendcmd\n");
    let text = ["cmd=init pmi_version=1 pmi_subversion=1\n", &spawn(1), &spawn(2), "cmd=get_maxes\n"].concat();
    let (replies, events) = hear(&text.lines().collect::<Vec<_>>());
    assert_eq!(events, []);
    assert_eq!(replies[1], "cmd=spawn_result rc=-1 msg=spawning_is_not_supported");
    assert_eq!(replies.len(), 3);
}

/// The lines that MPICH 3.4's and 4.0's clients send: that job ends which cannot do without, and no other.
#[test]
fn names_of_services_are_refused_with_an_answer() {
    let (replies, events) = hear(&[
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=publish_name service=ocean port=tag#0$description#host$port#1$ifname#10.0.0.1$\n",
        "cmd=lookup_name service=ocean\n",
        "cmd=unpublish_name service=ocean\n",
        "cmd=finalize\n",
    ]);
    assert_eq!(events, []);
    assert_eq!(
        replies[1..],
        [
            "cmd=publish_result info=fail rc=-1 msg=name_publishing_is_not_supported",
            "cmd=lookup_result info=fail rc=-1 msg=name_publishing_is_not_supported",
            "cmd=unpublish_result info=fail rc=-1 msg=name_publishing_is_not_supported",
            "cmd=finalize_ack",
        ]
    );
}

#[test]
fn a_space_that_is_full_refuses() {
    let mut server = Server::new("job", &Mapping(vec![0]));
    server.handle_line(0, b"cmd=init pmi_version=1 pmi_subversion=1");
    let value = "x".repeat(1024);
    for key in 0..70_000 {
        server.handle_line(0, format!("cmd=put kvsname=job key={key} value={value}").as_bytes());
        server.handle_line(0, format!("cmd=put kvsname=job key=same value={value}").as_bytes());
    }
    let refused = std::iter::from_fn(|| server.poll_reply()).filter(|(_, line)| line.contains("space_is_full")).count();
    assert!((4_000..15_000).contains(&refused), "{refused}");
}

/// Every request in every stage: what is answered, and what is a violation.
#[test]
fn requests_out_of_place_are_violations() {
    let stages: [(&str, &[&str]); 5] = [
        ("Fresh", &[]),
        ("Ready", &["cmd=init pmi_version=1 pmi_subversion=1"]),
        ("Waiting", &["cmd=init pmi_version=1 pmi_subversion=1", "cmd=barrier_in"]),
        ("Spawning", &["cmd=init pmi_version=1 pmi_subversion=1", "mcmd=spawn"]),
        ("Done", &["cmd=init pmi_version=1 pmi_subversion=1", "cmd=finalize"]),
    ];
    let requests = [
        ("cmd=init pmi_version=1 pmi_subversion=1", "R!!.!"),
        ("cmd=init pmi_version=2 pmi_subversion=0", "R!!.!"),
        ("cmd=initack pmiid=0", "!!!.!"),
        ("cmd=get_maxes", "!R!.!"),
        ("cmd=put kvsname=job key=k value=v", "!R!.!"),
        ("cmd=get kvsname=job key=k", "!R!.!"),
        ("cmd=get_many kvsname=job keys=k* from=0", "!R!.!"),
        ("cmd=get_many kvsname=job from=0", "!!!.!"),
        ("cmd=barrier_in", "!.!.!"),
        ("cmd=finalize", "!R!.!"),
        ("cmd=abort exitcode=3", "AAA.A"),
        ("cmd=lookup_name service=s", "!R!.!"),
        ("mcmd=spawn", "!.!.!"),
        ("endcmd", "!!!R!"),
        ("cmd=get kvsname=job", "!!!.!"),
        ("cmd=init pmi_version=one pmi_subversion=1", "!!!.!"),
        ("cmd=cook", "!!!.!"),
        ("", "!!!.!"),
    ];
    for (request, wanted) in requests {
        let got = stages.iter().map(|(_, before)| {
            let count = hear(before).0.len();
            let (replies, events) = hear(&[before, &[request][..]].concat());
            match events.first() {
                Some(ServerEvent::Violation { rank: 0, .. }) => '!',
                Some(ServerEvent::Abort { code: 3, .. }) => 'A',
                Some(other) => panic!("{other:?}"),
                None if replies.len() > count => 'R',
                None => '.',
            }
        });
        let got: String = got.collect();
        assert_eq!(got, wanted, "`{request}` when {:?}", stages.map(|(name, _)| name));
    }
}

fn word() -> impl Strategy<Value = String> {
    "[!-~]{1,40}"
}

proptest! {
    #[test]
    fn any_bytes_are_a_line_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(line) = Line::parse(&bytes) {
            let _ = (Request::parse(&line), Reply::parse(&line));
        }
    }

    #[test]
    fn nearly_right_lines_never_panic(text in "m?cmd=(init|put|get|abort|set|maxes|appnum|get_result|spawn)( (key|value|kvsname|rc|exitcode|size|pmi_version|keylen_max)=[-0-9a-z= ]{0,6}){0,5}[ \r\n=é]{0,3}") {
        if let Ok(line) = Line::parse(text.as_bytes()) {
            let _ = (Request::parse(&line), Reply::parse(&line));
        }
        let mut server = Server::new("job", &Mapping(vec![0]));
        server.handle_line(0, text.as_bytes());
    }

    #[test]
    fn requests_read_back_as_written(space in "[a-z0-9_.]{1,40}", key in "[a-zA-Z0-9_-]{1,40}", value in word(), number in any::<u16>()) {
        for request in [
            Request::Init { version: u32::from(number), subversion: 1 },
            Request::InitAck { id: usize::from(number) },
            Request::Put { space: &space, key: &key, value: &value },
            Request::Get { space: &space, key: &key },
            Request::Abort { code: i32::from(number), why: &key },
            Request::GetMany { space: &space, keys: &key, from: usize::from(number) },
            Request::GetMaxes,
            Request::BarrierIn,
            Request::Name(NameCommand::Publish),
            Request::Name(NameCommand::Unpublish),
            Request::Name(NameCommand::Lookup),
            Request::Spawn,
        ] {
            let text = request.to_string();
            let line = Line::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(Request::parse(&line).unwrap().unwrap(), request);
        }
    }

    #[test]
    fn replies_read_back_as_written(value in word(), why in "[a-z_]{1,40}", number in any::<u16>()) {
        let maxes = Maxes { space: usize::from(number), key: 1, value: 2 };
        for reply in [
            Reply::ResponseToInit { version: 1, subversion: u32::from(number), rc: -1 },
            Reply::Set { key: "rank", value: "7" },
            Reply::Maxes(maxes),
            Reply::Appnum(-1),
            Reply::UniverseSize(i32::from(number)),
            Reply::MyKvsname(&value),
            Reply::PutResult(Ok(())),
            Reply::PutResult(Err(&why)),
            Reply::GetResult(Ok(&value)),
            Reply::GetResult(Err(&why)),
            Reply::NameRefused(NameCommand::Publish),
            Reply::NameRefused(NameCommand::Unpublish),
            Reply::NameRefused(NameCommand::Lookup),
            Reply::SpawnResult(Err(&why)),
            Reply::ManyResult(Ok(&value)),
            Reply::ManyResult(Err(&why)),
            Reply::BarrierOut,
            Reply::FinalizeAck,
        ] {
            let text = reply.to_string();
            let line = Line::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(Reply::parse(&line).unwrap().unwrap(), reply);
        }
    }
}
