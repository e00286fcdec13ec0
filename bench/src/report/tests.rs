use super::*;

fn machine() -> Machine {
    Machine {
        cpu: "Some CPU".to_owned(),
        cores: 2,
        kernel: "6.1.0".to_owned(),
        clocksource: "tsc".to_owned(),
        virtualised: true,
        memory_mib: 2048,
        tcp_congestion_controls: vec!["reno".to_owned(), "cubic".to_owned()],
    }
}

fn half(p50: f64) -> Option<Summary> {
    Some(Summary { min: p50 - 10.0, p50, p99: Some(p50 * 2.0), p999: Some(p50 * 3.0), n: 1000 })
}

fn row(name: Rung, regime: Regime) -> Row {
    Row::empty(Name::Rung(name), (!name.is_kernel()).then_some(NicKind::Uring), regime, 8)
}

/// A row of three rounds with these p50s.
fn timed(name: Rung, p50s: [f64; 3]) -> Row {
    let mut row = row(name, Regime::DefaultOffloads);
    row.half_rtt_ns = half(median(&mut p50s.clone()).unwrap());
    row.rounds = p50s.map(|p50| Round { half_rtt_ns: half(p50), ..Round::default() }).to_vec();
    row
}

/// A row of three rounds with these bandwidths.
fn carried(mut row: Row, gbits: [f64; 3]) -> Row {
    row.rounds.resize(3, Round::default());
    for (round, gbit) in row.rounds.iter_mut().zip(gbits) {
        round.gbit_per_s = Some(gbit);
    }
    row.gbit_per_s = median(&mut gbits.clone());
    row
}

fn report() -> Report {
    let tcp = Row {
        half_rtt_p50_spread_ns: Some((2850.0, 2950.0)),
        msgs_per_s: Some(400e3),
        msgs_per_s_gathered: Some(1.2e6),
        gbit_size: Some(1 << 20),
        gbit_per_s: Some(70.0),
        congestion: Some("cubic".to_owned()),
        gbit_per_s_by_congestion: vec![("reno".to_owned(), 60.0), ("cubic".to_owned(), 70.0)],
        ..timed(Rung::TcpPoll, [2850.0, 2900.0, 2950.0])
    };
    let tcp = carried(tcp, [60.0, 70.0, 80.0]);
    let raw = Row { msgs_per_s: Some(1.2e6), ..timed(Rung::Raw, [725.0, 725.0, 1000.0]) };
    let proto = Row { msgs_per_s: Some(4e6), ..timed(Rung::Proto, [800.0, 790.0, 1080.0]) };
    let real = Row { gbit_size: Some(1 << 20), gbit_per_s: Some(12.0), ..row(Rung::Proto, Regime::RealFrames) };
    let mut rungs = vec![tcp, raw, proto, real];
    for row in &mut rungs {
        row.beside = vec![NicKind::Uring, NicKind::Xdp];
    }
    compare(&mut rungs);
    of(rungs)
}

/// A report of these rows and nothing else.
fn of(rungs: Vec<Row>) -> Report {
    Report { schema: SCHEMA.to_owned(), machine: machine(), peer: None, pace: None, contenders: BTreeMap::new(), rungs }
}

#[test]
fn unsteady_cores_are_told_of_and_steady_ones_are_not() {
    let at = |tenth| Report { pace: Some(Pace { tenth, median: 0.96 }), ..report() }.to_table();
    assert!(at(0.62).contains("\nunsteady: ") && !at(0.93).contains("unsteady"));
}

#[test]
fn what_is_appended_keeps_the_slower_pace() {
    let with = |pace| Report { pace, ..report() };
    let (fast, slow) = (Some(Pace { tenth: 0.9, median: 1.0 }), Some(Pace { tenth: 0.7, median: 0.8 }));
    for (first, second, both) in [(fast, slow, slow), (slow, None, slow), (None, fast, fast), (None, None, None)] {
        let mut report = with(first);
        let rows = report.rungs.len();
        report.append(with(second));
        assert_eq!((report.pace, report.rungs.len()), (both, 2 * rows));
    }
}

#[test]
fn rungs_are_compared_within_each_round() {
    let report = report();
    let proto = &report.rungs[2];
    assert_eq!(proto.over_below_ns, Some(75.0), "of 75, 65 and 80");
    assert_eq!(proto.faster_than_tcp_poll, Some(3.563), "of 3.563, 3.671 and 2.731");
    assert_eq!(report.rungs[1].over_below_ns, None, "nothing is below raw");
    assert_eq!(report.rungs[3].over_below_ns, None, "rungs of another regime are another ladder");
}

#[test]
fn bandwidths_are_compared_within_each_round() {
    let empty = |name| row(name, Regime::DefaultOffloads);
    // A machine that changes its pace: the medians alone would say 30 of 20.
    let mut rungs = vec![
        carried(empty(Rung::TcpPoll), [20.0, 20.0, 60.0]),
        carried(empty(Rung::Raw), [30.0, 10.0, 30.0]),
        empty(Rung::Proto),
    ];
    rungs[0].gbit_size = Some(1 << 20);
    compare(&mut rungs);
    let of: Vec<_> = rungs.iter().map(|row| row.gbit_of_tcp_poll).collect();
    assert_eq!(of, [Some(1.0), Some(0.5), None]);
    let without: Vec<_> =
        [carried(empty(Rung::Raw), [30.0, 10.0, 30.0]), carried(empty(Rung::Proto), [15.0, 9.0, 24.0])].into();
    let mut without = Report { rungs: without, ..report() };
    without.rungs[1].gbit_size = Some(1 << 20);
    compare(&mut without.rungs);
    assert_eq!(without.rungs[1].gbit_of_below, Some(0.8), "of 0.5, 0.9 and 0.8");
    let table = without.to_table();
    assert!(table.contains("rung below") && table.contains("0.80x") && !table.contains("tcp-poll"), "{table}");
    let table = Report { rungs, ..report() }.to_table();
    assert!(table.lines().any(|line| line.contains("raw ") && line.contains("30.0      0.50x")), "{table}");
}

#[test]
fn rungs_are_compared_on_their_own_driver() {
    let on_xdp = |row: Row| Row { nic: Some(NicKind::Xdp), ..row };
    let mut rungs = vec![
        timed(Rung::TcpPoll, [3000.0; 3]),
        timed(Rung::Raw, [750.0; 3]),
        timed(Rung::Proto, [850.0; 3]),
        on_xdp(timed(Rung::Raw, [1000.0; 3])),
        on_xdp(timed(Rung::Proto, [1200.0; 3])),
    ];
    compare(&mut rungs);
    let over: Vec<_> = rungs.iter().filter_map(|row| row.over_below_ns).collect();
    let faster: Vec<_> = rungs.iter().filter_map(|row| row.faster_than_tcp_poll).collect();
    assert_eq!((over, faster), (vec![100.0, 200.0], vec![1.0, 4.0, 3.529, 3.0, 2.5]));
    let report = of(rungs);
    let table = report.to_table();
    assert!(table.contains("Ladder on uring and xdp, default"), "{table}");
    assert!(table.lines().any(|line| line.contains("proto xdp") && line.contains("1200 ns")), "{table}");
}

#[test]
fn the_table_reads_as_it_always_did() {
    let expected = include_str!("../../tests/snapshots/ladder.txt");
    let table = report().to_table();
    assert_eq!(table, expected, "if this is meant, write the new table to tests/snapshots/ladder.txt:\n{table}");
}

/// What was measured at several sizes is a curve, else there are bars; each regime, and each group of drivers, has its own.
#[test]
fn the_page_has_a_chart_of_each_figure() {
    let one_size = report();
    let page = one_size.to_html();
    let charts = |page: &str| page.matches("<svg").count();
    // Three figures of the first regime, and the bandwidth of the other.
    assert!(charts(&page) == 4 && page.matches("<circle").count() == 0, "{page}");
    for text in ["half round trip, p50 of 8 B", "Gbit/s of 1 MiB, real frames", "2900 ns", "Ladder on uring, real"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let mut several = one_size.clone();
    several.rungs.retain(|row| row.regime == Regime::DefaultOffloads);
    for size in [64, 1024] {
        let more: Vec<_> = several.rungs.iter().take(3).map(|row| Row { size, ..row.clone() }).collect();
        several.rungs.extend(more);
    }
    let page = several.to_html();
    // Of the bandwidth's one size there are bars.
    assert!(charts(&page) == 3 && page.matches("<circle").count() == 2 * 9, "{page}");
    let mut groups = one_size.clone();
    groups.rungs.retain(|row| row.regime == Regime::DefaultOffloads);
    let others = groups.rungs.iter().map(|row| Row { beside: vec![NicKind::Shm], ..row.clone() }).collect::<Vec<_>>();
    groups.rungs.extend(others);
    assert_eq!(charts(&groups.to_html()), 6);
}

#[test]
fn what_kernel_tcp_was_not_tried_with_is_told() {
    let told = |report: &Report| report.to_table().matches("not tried with").count();
    let mut report = report();
    assert_eq!(told(&report), 1, "of the regime in which it was measured");
    assert!(report.to_table().contains("\nkernel TCP: not tried with bbr, "), "{}", report.to_table());
    report.rungs[0].gbit_per_s_by_congestion.push(("bbr".to_owned(), 17.0));
    assert_eq!(told(&report), 0);
    report.rungs[0].gbit_per_s_by_congestion.clear();
    assert_eq!(told(&report), 3, "the system's own alone");
    let allowed =
        "not tried with reno, which may do better (sudo sysctl net.ipv4.tcp_allowed_congestion_control='reno cubic')\n";
    assert!(report.to_table().contains(allowed), "loaded, and refused: {}", report.to_table());
    report.machine.tcp_congestion_controls.clear();
    let table = report.to_table();
    assert!(table.contains("not tried with reno, which may do better\n"), "there is no module of it: {table}");
    assert!(table.contains("not tried with cubic, which may do better (sudo modprobe tcp_cubic)\n"), "{table}");
    report.rungs[0].gbit_per_s = None;
    assert_eq!(told(&report), 0, "nothing of it is a bandwidth");
}

#[test]
fn lines_that_are_too_long_for_a_terminal_are_two_tables() {
    let (report, longest) = (report(), |text: &str| text.lines().skip(3).map(|line| line.chars().count()).max());
    let whole = report.to_table();
    let width = longest(&whole[..whole.find("real frames").unwrap()]).unwrap();
    assert_eq!(report.to_table_within(width), whole);
    let cut = report.to_table_within(width - 1);
    let (times, rates) = cut.split_once("messages/s").unwrap();
    assert!(times.contains("2900 ns") && !rates.contains("2900 ns") && rates.contains("70.0 (cubic)"), "{cut}");
    assert!(longest(&cut[..cut.find("real frames").unwrap()]) <= Some(80), "{cut}");
}

#[test]
fn the_csv_reads_as_it_always_did() {
    let expected = "name,nic,beside,regime,size,half_rtt_min_ns,half_rtt_p50_ns,half_rtt_p99_ns,half_rtt_p999_ns,n,msgs_per_s,gbit_size,gbit_per_s,congestion,whole,depth,depth_held\n\
        tcp-poll,kernel,uring+xdp,default-offloads,8,2890.0,2900.0,5800.0,8700.0,1000,400000,1048576,70.000,cubic,false,,\n\
        raw,uring,uring+xdp,default-offloads,8,715.0,725.0,1450.0,2175.0,1000,1200000,,,,false,,\n\
        proto,uring,uring+xdp,default-offloads,8,790.0,800.0,1600.0,2400.0,1000,4000000,,,,false,,\n\
        proto,uring,uring+xdp,real-frames,8,,,,,,,1048576,12.000,,false,,\n";
    assert_eq!(report().to_csv(), expected);
}

#[test]
fn the_json_has_the_fields_of_its_schema() {
    let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
    assert_eq!(json["schema"], "sidelane-ladder/1");
    assert_eq!(json["machine"]["cores"], 2);
    let tcp = &json["rungs"][0];
    assert_eq!(tcp["name"], "tcp-poll");
    assert!(tcp["nic"].is_null());
    assert_eq!(tcp["regime"], "default-offloads");
    assert_eq!(tcp["size"], 8);
    for figure in ["min", "p50", "p99", "p999", "n"] {
        assert!(tcp["half_rtt_ns"][figure].is_number(), "{figure}");
        assert!(tcp["rounds"][0]["half_rtt_ns"][figure].is_number(), "{figure}");
    }
    assert_eq!((&tcp["msgs_per_s"], &tcp["gbit_per_s"]), (&400e3.into(), &70.0.into()));
    assert_eq!(json["rungs"][1]["nic"], "uring");
    assert!(json["rungs"][1]["gbit_per_s"].is_null());
}

#[test]
fn the_json_reads_back() {
    assert_eq!(serde_json::from_str::<Report>(&report().to_json()).unwrap(), report());
}

#[test]
fn a_contender_stands_beside_the_rungs_and_our_topmost_against_it() {
    let contended = |kind, size, outcomes: [Outcome; 3]| Contended {
        name: "other".to_owned(),
        regime: Regime::DefaultOffloads,
        kind,
        size,
        rounds: outcomes.to_vec(),
    };
    let took = |p50| Outcome { half_rtt_ns: half(p50), ..Outcome::default() };
    let rate = |rate| Outcome { msgs_per_s: Some(rate), ..Outcome::default() };
    let all = [
        contended(Kind::PingPong, 8, [3000.0, 3600.0, 4000.0].map(took)),
        contended(Kind::Flood, 8, [1e6, 1e6, 2e6].map(rate)),
        contended(Kind::Bandwidth, 1 << 20, [8000.0; 3].map(rate)),
    ];
    let all: Vec<_> = all.iter().collect();
    let mut rungs = vec![timed(OURS, [1000.0, 1200.0, 2000.0])];
    for (round, (rate, gbit)) in rungs[0].rounds.iter_mut().zip([(4e6, 50.0), (6e6, 60.0), (6e6, 70.0)]) {
        (round.msgs_per_s, round.gbit_per_s) = (Some(rate), Some(gbit));
    }
    rungs.extend(contender_rows(Regime::DefaultOffloads, 8, &all));
    compare(&mut rungs);
    let lead = Lead { nic: NicKind::Uring, half_rtt: Some(3.0), msgs_per_s: Some(4.0), gbit_per_s: Some(0.894) };
    assert_eq!(rungs[1].leads, [lead], "within rounds 3, 3, 2; 4, 6, 3; 50, 60 and 70 of 67.1");
    assert_eq!(rungs[1].half_rtt_ns.unwrap().p50, 3600.0);
    assert!(rungs[0].leads.is_empty(), "nobody leads over a rung");

    let contenders = [("other".to_owned(), "Other 5.0".to_owned())].into();
    let report = Report { contenders, ..of(rungs) };
    let table = report.to_table();
    assert!(table.contains("other: Other 5.0\n"), "{table}");
    assert!(table.lines().any(|line| line.contains("other ") && line.contains("3600 ns")), "{table}");
    assert!(table.lines().any(|line| line.contains("uring ") && line.contains("3.00x")), "{table}");
    assert!(report.to_csv().lines().any(|line| line.starts_with("other,,,default-offloads,8,")));
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn a_round_without_a_figure_shifts_no_other() {
    let mut rows = [timed(Rung::TcpPoll, [2000.0, 3000.0, 4000.0]), row(Rung::Raw, Regime::DefaultOffloads)];
    let saw =
        |p50: Option<f64>, rate| Outcome { half_rtt_ns: p50.and_then(half), msgs_per_s: rate, ..Outcome::default() };
    let rounds = [saw(Some(1000.0), Some(1.0)), saw(None, None), saw(Some(1000.0), Some(3.0))];
    rows[1].add_ping_pong(&rounds);
    rows[1].add_flood(&rounds, &Variant::Plain);
    rows[1].add_bandwidth(&rounds, 1 << 20, &Variant::Plain);
    let seen =
        rows[1].rounds.iter().map(|round| (round.half_rtt_ns.is_some(), round.msgs_per_s, round.gbit_per_s.is_some()));
    assert_eq!(seen.collect::<Vec<_>>(), [(true, Some(1.0), true), (false, None, false), (true, Some(3.0), true)]);
    compare(&mut rows);
    assert_eq!(rows[1].faster_than_tcp_poll, Some(3.0), "of 2 and 4, the first and the last round");
}

#[test]
fn a_thin_round_counts_nowhere_beside_full_ones() {
    let saw = |p50: f64, n| {
        let summary = Summary { min: p50 - 10.0, p50, p99: None, p999: None, n };
        Outcome { half_rtt_ns: Some(summary), ..Outcome::default() }
    };
    let mut rows = vec![timed(Rung::TcpPoll, [2600.0, 2500.0, 2500.0]), row(Rung::Raw, Regime::DefaultOffloads)];
    rows[1].add_ping_pong(&[saw(1402.0, 1), saw(125.0, 14_000), saw(100.0, 13_000)]);
    compare(&mut rows);
    let raw = &rows[1];
    assert_eq!(raw.half_rtt_ns.map(|half| (half.min, half.p50, half.n)), Some((90.0, 112.5, 27_000)));
    assert_eq!(raw.half_rtt_p50_spread_ns, Some((100.0, 125.0)));
    assert_eq!((raw.half_rtt_n_least, raw.half_rtt_rounds_left_out), (Some(13_000), 1));
    assert_eq!(raw.faster_than_tcp_poll, Some(22.5), "of 20 and 25");
    assert_eq!(raw.rounds[0].half_rtt_ns.unwrap().n, 1, "what it saw is told");
    let other = Row { nic: None, ..timed(Rung::Raw, [500.0; 3]) };
    let contender = Row { name: Name::Contender("other".to_owned()), ..other };
    rows[1].name = Name::Rung(OURS);
    rows.push(contender);
    compare(&mut rows);
    assert_eq!(rows[2].leads[0].half_rtt, Some(4.5), "of 4 and 5");
    let report = of(rows);
    let table = report.to_table();
    assert!(table.contains("\nmpi: 1 of 3 rounds had too few round trips and do not count\n"), "{table}");
    assert!(!table.contains("(n "), "{table}");
}

#[test]
fn what_few_samples_do_not_tell_stays_open() {
    let few = Summary { p99: None, p999: None, n: 8, ..half(3e6).unwrap() };
    let mut raw = row(Rung::Raw, Regime::DefaultOffloads);
    raw.add_ping_pong(&[8, 9].map(|n| Outcome { half_rtt_ns: Some(Summary { n, ..few }), ..Outcome::default() }));
    let report = Report { rungs: vec![raw], ..report() };
    let table = report.to_table();
    assert!(table.contains(" 3000.0 µs (n 8) ") && table.contains("raw: 8 round trips (n) in the round "), "{table}");
    let line = table.lines().find(|line| line.contains("raw ")).unwrap();
    assert!(line.ends_with(" -                -             - │"), "p99 and comparisons: {line}");
    assert!(report.to_csv().ends_with(",8,2999990.0,3000000.0,,,17,,,,,false,,\n"), "{}", report.to_csv());
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let half = &json["rungs"][0]["half_rtt_ns"];
    assert!(half["p99"].is_null() && half["p999"].is_null() && half["n"] == 17, "{half}");
    assert_eq!(json["rungs"][0]["half_rtt_n_least"], 8);
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn what_was_measured_again_is_told() {
    let plan = Plan { rungs: vec![Rung::Raw], ..Plan::new(&[NicKind::Uring]) };
    let mut measured: Vec<_> = plan.cells().into_iter().map(Measured::new).collect();
    measured[1].again = vec!["side B: frames were lost".to_owned(); 2];
    let report = Report::new(&plan, &measured, &[], BTreeMap::new());
    assert_eq!(report.rungs[0].again, ["flood: side B: frames were lost"; 2]);
    assert!(report.rungs[1].again.is_empty(), "that is another regime");
    let table = report.to_table();
    assert!(table.contains("\nraw: 2 failed and made again; flood: side B: frames were lost\n"), "{table}");
    assert!(!self::report().to_json().contains("again"), "it is rare");
}

#[test]
fn a_depth_that_the_path_does_not_hold_is_told() {
    let mut plan = Plan { rungs: vec![Rung::Raw, Rung::Proto], depth: Some(64), ..Plan::new(&[NicKind::Mem]) };
    plan.regimes = vec![(Regime::DefaultOffloads, vec![Kind::Flood])];
    let saw = |depth| vec![Outcome { msgs_per_s: Some(1e6), depth: Some(depth), ..Outcome::default() }];
    let cells = plan.cells().into_iter().zip([2, 64]);
    let measured: Vec<_> = cells.map(|(cell, held)| Measured { rounds: saw(held), ..Measured::new(cell) }).collect();
    let report = Report::new(&plan, &measured, &[], BTreeMap::new());
    let depths: Vec<_> = report.rungs.iter().map(|row| (row.depth, row.depth_held)).collect();
    assert_eq!(depths, [(Some(64), Some(2)), (Some(64), None)]);
    let table = report.to_table();
    assert!(table.contains("64 deep") && table.contains("\nraw: 2 deep, since"), "{table}");
    assert!(!table.contains("proto: "), "{table}");
}

#[test]
fn only_rows_of_answered_floods_have_a_depth() {
    let mut plan = Plan { rungs: vec![Rung::Mpi, Rung::Raw], depth: Some(8), ..Plan::new(&[NicKind::Mem]) };
    plan.regimes = vec![(Regime::DefaultOffloads, vec![Kind::PingPong, Kind::Flood])];
    let rounds = vec![Outcome { msgs_per_s: Some(1e6), depth: Some(8), ..Outcome::default() }];
    let measured: Vec<_> =
        plan.cells().into_iter().map(|cell| Measured { rounds: rounds.clone(), ..Measured::new(cell) }).collect();
    let report = Report::new(&plan, &measured, &[], BTreeMap::new());
    let depths: Vec<_> = report.rungs.iter().map(|row| (row.name.rung(), row.depth)).collect();
    assert_eq!(depths, [(Some(Rung::Mpi), None), (Some(Rung::Raw), Some(8))]);
    let table = report.to_table();
    assert!(table.contains("8 deep"), "{table}");
}

#[test]
fn a_bandwidth_of_all_sizes_has_a_row_for_each() {
    let mut plan = Plan { rungs: vec![Rung::Raw], sizes: vec![4096, 65_536], ..Plan::new(&[NicKind::Shm]) };
    plan.regimes = vec![(Regime::DefaultOffloads, vec![Kind::Bandwidth])];
    let rows = |plan: &Plan| {
        let rounds = vec![Outcome { msgs_per_s: Some(1e6), ..Outcome::default() }];
        let measured: Vec<_> =
            plan.cells().into_iter().map(|cell| Measured { rounds: rounds.clone(), ..Measured::new(cell) }).collect();
        let report = Report::new(plan, &measured, &[], BTreeMap::new());
        report.rungs.iter().map(|row| (row.size, row.gbit_size, row.gbit_per_s.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(rows(&plan), [(4096, Some(1 << 20), true)]);
    plan.bandwidth_size = None;
    assert_eq!(rows(&plan), [(4096, Some(4096), true), (65_536, Some(65_536), true)]);
}

#[test]
fn several_sizes_make_a_curve_beside_contenders() {
    let other = |p50: f64| Row {
        half_rtt_ns: half(p50),
        rounds: vec![Round { half_rtt_ns: half(p50), ..Round::default() }; 3],
        ..Row::empty(Name::Contender("some-mpi".to_owned()), None, Regime::DefaultOffloads, 8)
    };
    let mut rungs = Vec::new();
    for (size, ours, theirs) in [(8, 1_000.0, 4_000.0), (1 << 10, 2_000.0, 5_000.0), (1 << 20, 80_000.0, 60_000.0)] {
        rungs.push(Row { size, ..timed(Rung::Mpi, [ours; 3]) });
        rungs.push(Row { size, ..other(theirs) });
    }
    assert!(curve::of(&rungs[..4]).is_none(), "two sizes are no curve");
    compare(&mut rungs);
    let table = curve::of(&rungs).unwrap().to_string();
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert!(lines.iter().any(|line| words(line).contains("8 B 1000 ns 4000 ns 4.00x")), "{table}");
    assert!(lines.iter().any(|line| words(line).contains("1 MiB 80.0 µs 60.0 µs 0.75x")), "{table}");
}

#[test]
fn a_curve_of_whole_round_trips_says_so() {
    let rows: Vec<_> = [8, 64, 512].map(|size| Row { size, ..timed(Rung::Get, [1_000.0; 3]) }).into();
    let table = curve::of(&rows).unwrap().to_string();
    assert!(table.contains("get, whole"), "{table}");
}

#[test]
fn what_a_figure_is_of_stands_in_its_row() {
    let mut rows = [Rung::Raw, Rung::Get].map(|name| timed(name, [1_000.0; 3])).to_vec();
    (rows[0].depth, rows[0].depth_held) = (Some(64), Some(2));
    let report = Report { rungs: rows, ..report() };
    let csv = report.to_csv();
    let ends: Vec<&str> = csv.lines().map(|line| line.split_once("1000,,,,,").map_or(line, |(_, end)| end)).collect();
    assert!(ends[0].ends_with(",whole,depth,depth_held"), "{csv}");
    assert_eq!(ends[1..], ["false,64,2", "true,,"], "{csv}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let whole: Vec<_> = json["rungs"].as_array().unwrap().iter().map(|row| row["whole"].as_bool()).collect();
    assert_eq!(whole, [Some(false), Some(true)]);
}

#[test]
fn small_figures_are_not_rounded_to_nothing() {
    let mut report = report();
    report.rungs.truncate(1);
    report.rungs[0].msgs_per_s = Some(3.25);
    report.rungs[0].msgs_per_s_gathered = Some(1_250.0);
    report.rungs[0].gbit_per_s = Some(0.016);
    let table = report.to_table();
    assert!(table.contains(" 3.2 (1.2 k) ") && table.contains(" 0.016 (cubic) "), "{table}");
    report.rungs[0].gbit_per_s = Some(0.0004);
    let (table, csv) = (report.to_table(), report.to_csv());
    assert!(table.contains(" 0.000400 (cubic) ") && csv.contains(",0.000400,cubic,"), "{table}{csv}");
}
