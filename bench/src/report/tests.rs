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
    Some(Summary { min: p50 - 10.0, p50, p99: p50 * 2.0, p999: p50 * 3.0, n: 1000 })
}

fn report() -> Report {
    let row = |name, regime| Row::empty(name, NicKind::Uring, regime, 8);
    let default = Regime::DefaultOffloads;
    let tcp = Row {
        half_rtt_ns: half(2900.0),
        half_rtt_p50_spread_ns: Some((2850.0, 2950.0)),
        msgs_per_s: Some(400e3),
        msgs_per_s_gathered: Some(1.2e6),
        gbit_size: Some(1 << 20),
        gbit_per_s: Some(70.0),
        congestion: Some("cubic".to_owned()),
        gbit_per_s_by_congestion: vec![("reno".to_owned(), 60.0), ("cubic".to_owned(), 70.0)],
        rounds: vec![Round { half_rtt_ns: half(2900.0), msgs_per_s: Some(400e3), gbit_per_s: Some(70.0) }],
        ..row(Rung::TcpPoll, default)
    };
    let raw = Row { half_rtt_ns: half(725.0), msgs_per_s: Some(1.2e6), ..row(Rung::Raw, default) };
    let proto = Row { half_rtt_ns: half(800.0), msgs_per_s: Some(4e6), ..row(Rung::Proto, default) };
    let real = Row { gbit_size: Some(1 << 20), gbit_per_s: Some(12.0), ..row(Rung::Proto, Regime::RealFrames) };
    Report { schema: SCHEMA.to_owned(), machine: machine(), rungs: vec![tcp, raw, proto, real] }
}

#[test]
fn the_table_reads_as_it_always_did() {
    let expected = include_str!("../../tests/snapshots/ladder.txt");
    let table = report().to_table();
    assert_eq!(table, expected, "if this is meant, write the new table to tests/snapshots/ladder.txt:\n{table}");
}

#[test]
fn the_csv_reads_as_it_always_did() {
    let expected = "name,nic,regime,size,half_rtt_min_ns,half_rtt_p50_ns,half_rtt_p99_ns,half_rtt_p999_ns,n,msgs_per_s,gbit_size,gbit_per_s,congestion\n\
        tcp-poll,kernel,default-offloads,8,2890.0,2900.0,5800.0,8700.0,1000,400000,1048576,70.000,cubic\n\
        raw,uring,default-offloads,8,715.0,725.0,1450.0,2175.0,1000,1200000,,,\n\
        proto,uring,default-offloads,8,790.0,800.0,1600.0,2400.0,1000,4000000,,,\n\
        proto,uring,real-frames,8,,,,,,,1048576,12.000,\n";
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
