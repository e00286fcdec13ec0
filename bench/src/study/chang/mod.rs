//! Chang, Czajkowski, Hawblitzel and von Eicken, "Low-Latency Communication on the IBM RISC System/6000 SP" (1996): round
//! trips of Active Messages by words, over the raw driver (of their Table 3), what a request, a reply and a poll cost by words (Table 2), and
//! how fast stores and gets are ([`bulk`]).

pub mod bulk;

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ARGS_MAX, ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{PeerId, RemoteKey};

use bulk::Bulk;

use crate::clock::{self, now_ns};
use crate::idle;
use crate::ladder::{self, Host, LadderError, NicKind, Pair, PairError, Plan, Progress, Regime, Rung};
use crate::machine::Machine;
use crate::page::{self, Chart, Curve, Point, Section};
use crate::pattern::{Kind, Outcome, Pattern, Role};
use crate::report::{json, time};
use crate::side::{Layer, Path};
use crate::stats::median;
use crate::transport::{Broken, close, establish};

/// What the study has found on one driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chang {
    /// Names this form: [`SCHEMA`].
    pub schema: String,
    /// What it was measured on.
    pub machine: Machine,
    /// The driver.
    pub nic: NicKind,
    /// Round trips by words.
    pub words: Vec<Words>,
    /// What the calls cost by words: medians over rounds.
    pub costs: Vec<Costs>,
    /// What stores and gets take by size: medians over rounds.
    pub bulk: Vec<Bulk>,
}

/// Whole round trips with so many words of 8 bytes each way, p50.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Words {
    /// How many.
    pub words: usize,
    /// Bare frames.
    pub raw_ns: Option<f64>,
    /// Messages.
    pub proto_ns: Option<f64>,
    /// A request and its reply.
    pub am_ns: Option<f64>,
}

/// Processor time of the calls with so many words of 8 bytes each way, less that of the clock, p50.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// How many.
    pub words: usize,
    /// A request and the flush that puts it on the wire.
    pub request_ns: f64,
    /// What replying adds to a poll that has received a request: the reply and its way onto the wire.
    pub reply_ns: f64,
    /// A poll that finds nothing.
    pub poll_empty_ns: f64,
    /// What a received message adds to a poll: taking it in and running its handler.
    pub poll_message_ns: f64,
}

/// Measures on `nic`. `hosts` and `progress` are as in [`ladder::run`].
pub fn run(
    nic: NicKind,
    quick: bool,
    mut hosts: impl FnMut(Regime) -> io::Result<(Host, Host)>,
    progress: impl FnMut(Progress<'_>) -> bool,
) -> Result<Chang, LadderError> {
    let plan = Plan {
        rungs: vec![Rung::Raw, Rung::Proto, Rung::Am],
        regimes: vec![(Regime::DefaultOffloads, vec![Kind::PingPong])],
        sizes: WORDS.iter().map(|words| 8 * words).collect(),
        ..Plan::new(&[nic])
    };
    let plan = if quick { plan.quick() } else { plan };
    let report = ladder::run(&plan, &mut hosts, progress)?;
    let rtt = |rung, words| {
        let row = report.rungs.iter().find(|row| row.name == rung && row.size == 8 * words);
        row.and_then(|row| row.half_rtt_ns).map(|half| 2.0 * half.p50)
    };
    let words = WORDS.into_iter().map(|words| Words {
        words,
        raw_ns: rtt(Rung::Raw, words),
        proto_ns: rtt(Rung::Proto, words),
        am_ns: rtt(Rung::Am, words),
    });
    let regime = Regime::DefaultOffloads;
    let (a, b) = hosts(regime).map_err(|error| LadderError::Hosts(regime, error))?;
    let mut pair = Pair::spawn(a, b).map_err(LadderError::Sides)?;
    let costs = cost_rounds(nic, &plan, &mut pair)?;
    let bulk = bulk_rounds(nic, &plan, &mut pair)?;
    let (schema, machine) = (SCHEMA.to_owned(), report.machine.clone());
    Ok(Chang { schema, machine, nic, words: words.collect(), costs, bulk })
}

/// One measurement of a layer of the study.
fn once(
    nic: NicKind,
    plan: &Plan,
    pair: &mut Pair,
    layer: Layer,
    size: usize,
) -> Result<(Outcome, Outcome), LadderError> {
    let pattern = plan.pattern(Kind::PingPong, size);
    let path = |end: &ladder::End| Path::Nic { layer, nic: end.nic(nic), real_frames: false };
    ladder::twice(|| pair.measure(&pattern, path)).map_err(LadderError::Sides)
}

fn bulk_rounds(nic: NicKind, plan: &Plan, pair: &mut Pair) -> Result<Vec<Bulk>, LadderError> {
    let mut rounds = vec![Vec::new(); bulk::SIZES.len()];
    for _ in 0..plan.rounds {
        for (rounds, size) in rounds.iter_mut().zip(bulk::SIZES) {
            rounds.extend(once(nic, plan, pair, Layer::AmBulk, size)?.0.bulk);
        }
    }
    let of = |rows: &[Bulk], time: fn(&Bulk) -> f64| median(&mut rows.iter().map(time).collect::<Vec<_>>());
    let middle = |(rows, size): (&Vec<Bulk>, usize)| {
        Some(Bulk {
            size,
            store_ns: of(rows, |row| row.store_ns)?,
            store_async_ns: of(rows, |row| row.store_async_ns)?,
            get_ns: of(rows, |row| row.get_ns)?,
            get_async_ns: of(rows, |row| row.get_async_ns)?,
        })
    };
    rounds.iter().zip(bulk::SIZES).map(middle).collect::<Option<_>>().ok_or(NOTHING)
}

fn cost_rounds(nic: NicKind, plan: &Plan, pair: &mut Pair) -> Result<Vec<Costs>, LadderError> {
    let mut rounds = vec![Vec::new(); WORDS.len()];
    for _ in 0..plan.rounds {
        for (rounds, words) in rounds.iter_mut().zip(WORDS) {
            let (a, b) = once(nic, plan, pair, Layer::AmCosts, 8 * words)?;
            rounds.extend(a.costs.zip(b.costs));
        }
    }
    type Sides = (Costs, Costs);
    let of = |rows: &[Sides], figure: fn(&Sides) -> f64| median(&mut rows.iter().map(figure).collect::<Vec<_>>());
    let middle = |(rows, words): (&Vec<Sides>, usize)| {
        Some(Costs {
            words,
            request_ns: of(rows, |(a, _)| a.request_ns)?,
            // The side that replies knows what that costs, and what a message does.
            reply_ns: of(rows, |(_, b)| b.reply_ns)?,
            poll_empty_ns: of(rows, |(a, _)| a.poll_empty_ns)?,
            poll_message_ns: of(rows, |(_, b)| b.poll_message_ns)?,
        })
    };
    rounds.iter().zip(WORDS).map(middle).collect::<Option<_>>().ok_or(NOTHING)
}

/// No round, or none in which a side had figures.
const NOTHING: LadderError = LadderError::Sides(PairError::Nothing);

/// What a handler knows.
#[derive(Default)]
struct Inbox {
    messages: usize,
    replied: bool,
    over: bool,
    key: Option<RemoteKey>,
    /// Samples of the kind that the replying side has fewest of: there its own, and with the requester what it was told last.
    samples: u64,
}

/// Indices of the handlers: with and without a reply, the last one, and what brings a region's key.
const ECHO: u8 = 0;
const SILENT: u8 = 1;
const OVER: u8 = 2;
const KEY: u8 = 3;

fn handlers() -> Handlers<Inbox> {
    Handlers::new()
        .request(ECHO, |inbox: &mut Inbox, replier: Replier<'_>, args: Args<'_>, _| {
            inbox.messages += 1;
            let mut words = [0; ARGS_MAX];
            words[0] = inbox.samples;
            // A requester that is gone needs no reply.
            inbox.replied = !args.is_empty() && replier.reply(ECHO, &words[..args.len()], &[]).is_ok();
        })
        .request(SILENT, |inbox: &mut Inbox, _, _, _| inbox.messages += 1)
        .request(OVER, |inbox: &mut Inbox, _, _, _| inbox.over = true)
        .request(KEY, |inbox: &mut Inbox, _, _, payload| inbox.key = bulk::key_of(payload))
        .reply(ECHO, |inbox: &mut Inbox, _, args, _| {
            inbox.messages += 1;
            inbox.samples = args.get(0).unwrap_or(0);
        })
}

/// Plays one side and tells what its calls cost with the words that the pattern's size has.
pub(crate) fn costs<N: Nic>(nic: N, peer: LinkAddr, role: Role, pattern: &Pattern) -> Result<Outcome, Broken> {
    let deadline_ns = now_ns() + pattern.limit_ns;
    let (mut am, peer) = establish(nic, handlers(), &mut Inbox::default(), (role, peer), deadline_ns)?;
    let costs = match role {
        Role::Initiator => request(&mut am, peer, pattern, deadline_ns)?,
        Role::Responder => answer(&mut am, deadline_ns)?,
    };
    close(&mut am, &mut Inbox::default(), peer, deadline_ns);
    Ok(Outcome { costs: Some(costs), ..Outcome::default() })
}

type Am<N> = ActiveMessages<N, Inbox>;

/// Requests with and without replies by turns, one at a time, until the time is up and both sides have samples.
fn request<N: Nic>(am: &mut Am<N>, peer: PeerId, pattern: &Pattern, deadline_ns: u64) -> Result<Costs, Broken> {
    let (mut inbox, clock_cost) = (Inbox::default(), clock::cost_ns());
    let (mut requests, mut empty) = (Vec::new(), Vec::new());
    let words = pattern.size / 8;
    let args = &[7; ARGS_MAX][..words];
    let (warm_until, end) = (now_ns() + pattern.warm_ns, now_ns() + pattern.warm_ns + pattern.measure_ns);
    loop {
        let begin = now_ns();
        let late = begin >= end;
        if late && requests.len().min(inbox.samples as usize) >= SAMPLES_LEAST {
            break;
        }
        let taken = am.request(peer, ECHO, args, &[], ReplyRoom::SHORT);
        am.flush();
        let after = now_ns();
        taken.map_err(Broken::driver)?;
        while std::mem::take(&mut inbox.messages) == 0 {
            am.poll(&mut inbox);
            if now_ns() > deadline_ns {
                return Err(if late { Broken::NoSample } else { Broken::Deadline });
            }
            idle::make_way();
        }
        let quiet = now_ns();
        for _ in 0..POLLS {
            am.poll(&mut inbox);
        }
        let polled = now_ns();
        if begin >= warm_until {
            requests.push((after - begin) as f64 - clock_cost);
            empty.push(((polled - quiet) as f64 - clock_cost) / f64::from(POLLS));
        }
        // The other side sees it alone, in a poll of its own.
        let _ = am.request(peer, SILENT, args, &[], ReplyRoom::NONE);
        am.flush();
        // One that took long to answer because others have its core takes as long to come back to it.
        let apart_ns = if late { APART_NS.max(quiet - after) } else { APART_NS };
        let until = deadline_ns.min(now_ns() + apart_ns);
        while now_ns() < until {
            am.poll(&mut inbox);
            idle::make_way();
        }
    }
    am.request(peer, OVER, &[], &[], ReplyRoom::NONE).map_err(Broken::driver)?;
    let of = |mut samples: Vec<f64>| median(&mut samples).ok_or(Broken::NoSample);
    Ok(Costs { words, request_ns: of(requests)?, poll_empty_ns: of(empty)?, ..Costs::default() })
}

/// Times the polls in which one message came.
fn answer<N: Nic>(am: &mut Am<N>, deadline_ns: u64) -> Result<Costs, Broken> {
    let mut inbox = Inbox::default();
    let (mut empty, mut silent, mut replied) = (Vec::new(), Vec::new(), Vec::new());
    let mut begin = now_ns();
    while !inbox.over {
        am.poll(&mut inbox);
        let end = now_ns();
        let took = (end - begin) as f64;
        let samples = match (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.replied)) {
            (0, _) => Some(&mut empty),
            (1, false) => Some(&mut silent),
            (1, true) => Some(&mut replied),
            // We were not on the processor for a while.
            _ => None,
        };
        if let Some(samples) = samples.filter(|samples| samples.len() < SAMPLES_MAX) {
            samples.push(took);
        }
        inbox.samples = empty.len().min(silent.len()).min(replied.len()) as u64;
        if end > deadline_ns {
            return Err(Broken::Deadline);
        }
        idle::make_way();
        begin = now_ns();
    }
    let of = |mut samples: Vec<f64>| median(&mut samples).ok_or(Broken::NoSample);
    let (empty, silent, replied) = (of(empty)?, of(silent)?, of(replied)?);
    Ok(Costs { reply_ns: replied - silent, poll_message_ns: silent - empty, ..Costs::default() })
}

impl Chang {
    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nwhat calls take of the processor, p50, ns, by words of 8 bytes (theirs on the SP)")?;
        writeln!(f, "{:>8}{:>18}{:>18}{:>14}{:>14}", "words", "request", "reply", "empty poll", "a message")?;
        for row in &self.costs {
            let theirs = SP_COSTS.get(row.words.wrapping_sub(1));
            let beside = |ns: f64, theirs: Option<u32>| {
                format!("{ns:.0} {:>7}", theirs.map_or_else(String::new, |theirs| format!("({theirs})")))
            };
            let request = beside(row.request_ns, theirs.map(|(request, _)| *request));
            let reply = beside(row.reply_ns, theirs.map(|(_, reply)| *reply));
            let Costs { words, poll_empty_ns, poll_message_ns, .. } = row;
            writeln!(f, "{words:>8}{request:>18}{reply:>18}{poll_empty_ns:>14.0}{poll_message_ns:>14.0}")?;
        }
        writeln!(
            f,
            "  reply: beyond its request's poll; a message: what it adds to a poll; on the SP an empty poll took 1300, a message 1800"
        )
    }

    fn write_bulk(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nMB/s by size, one at a time and many")?;
        write!(f, "{:>9}", "bytes")?;
        COLUMNS.iter().try_for_each(|(name, ..)| write!(f, "{name:>13}"))?;
        for row in &self.bulk {
            write!(f, "\n{:>9}", row.size)?;
            COLUMNS.iter().try_for_each(|(_, time, _)| write!(f, "{:>13.1}", row.size as f64 * 1e3 / time(row)))?;
        }
        write!(f, "\n\n{:>13}{:>12}{:>10}   (n½ on the SP, of r∞ 34.3)", "", "r∞ MB/s", "n½ B")?;
        for (name, time, theirs) in COLUMNS {
            let bulk::Curve { r_inf, n_half } = bulk::Curve::of(&self.bulk, time);
            let n_half = n_half.map_or_else(|| "-".to_owned(), |n_half| format!("{n_half:.0}"));
            let theirs = if theirs.is_empty() { String::new() } else { format!("   ({theirs})") };
            write!(f, "\n{name:>13}{r_inf:>12.1}{n_half:>10}{theirs}")?;
        }
        Ok(())
    }

    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// A page for a browser: round trips and the cost of calls by words, and rates by size as charts; the tables; and the JSON form.
    pub fn to_html(&self) -> String {
        type Layer = (&'static str, fn(&Words) -> Option<f64>);
        const LAYERS: [Layer; 3] = [("raw", |row| row.raw_ns), ("proto", |row| row.proto_ns), ("am", |row| row.am_ns)];
        let by_words = LAYERS.map(|(name, of)| Curve {
            name: name.to_owned(),
            points: self.words.iter().filter_map(|row| Some(Point { size: 8 * row.words, value: of(row)? })).collect(),
        });
        type Call = (&'static str, fn(&Costs) -> f64);
        const CALLS: [Call; 4] = [
            ("request", |row| row.request_ns),
            ("reply", |row| row.reply_ns),
            ("empty poll", |row| row.poll_empty_ns),
            ("poll, for a message", |row| row.poll_message_ns),
        ];
        // A difference of two medians may be less than nothing, which has no place on a logarithmic axis.
        let calls = CALLS.map(|(name, of)| Curve {
            name: name.to_owned(),
            points: (self.costs.iter().map(|row| Point { size: 8 * row.words, value: of(row) }))
                .filter(|point| point.value > 0.0)
                .collect(),
        });
        let rates = COLUMNS.map(|(name, time, _)| {
            let rate = |row: &Bulk| Point { size: row.size, value: row.size as f64 * 1e3 / time(row) };
            Curve { name: name.to_owned(), points: self.bulk.iter().map(rate).collect() }
        });
        let charts = vec![
            Chart::Curves {
                title: "round trip by bytes each way, p50".to_owned(),
                curves: by_words.to_vec(),
                figure: |ns| time(Some(ns)),
            },
            Chart::Curves {
                title: "what a call takes of the processor by bytes each way, p50".to_owned(),
                curves: calls.to_vec(),
                figure: |ns| time(Some(ns)),
            },
            Chart::Curves {
                title: "stores and gets, MB/s".to_owned(),
                curves: rates.to_vec(),
                figure: |rate| if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") },
            },
        ];
        let title = format!("Sidelane: Active Messages on {}, after Chang and others (1996)", self.nic);
        let section = Section { charts, text: self.to_string() };
        page::write(&title, &self.machine.to_string(), &[section], &self.to_json())
    }
}

/// A kind of stores or gets, what one took, and its n½ on the SP.
type Column = (&'static str, fn(&Bulk) -> f64, &'static str);

/// Request and reply on the SP in nanoseconds, from one word on: their Table 2. Their words have 4 bytes, and their request polls.
const SP_COSTS: [(u32, u32); 4] = [(7700, 4000), (7900, 4100), (8000, 4300), (8200, 4400)];

const COLUMNS: [Column; 4] = [
    ("store", |row| row.store_ns, "2800"),
    ("async store", |row| row.store_async_ns, "260"),
    ("get", |row| row.get_ns, "3000"),
    ("async get", |row| row.get_async_ns, ""),
];

/// The tables, beside what the paper has (one word of 4 bytes on the SP: 47.0 µs raw, 51.0 µs Active Messages).
impl fmt::Display for Chang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Active Messages on {}, after Chang and others (1996)\n", self.nic)?;
        writeln!(f, "round trip, p50, ns, by words of 8 bytes each way")?;
        writeln!(f, "{:>8}{:>10}{:>10}{:>10}{:>12}", "words", "raw", "proto", "am", "am / raw")?;
        let figure = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        for row in &self.words {
            let over = row.am_ns.zip(row.raw_ns).map(|(am, raw)| format!("{:+.0} %", (am / raw - 1.0) * 100.0));
            let (raw, proto, am) = (figure(row.raw_ns), figure(row.proto_ns), figure(row.am_ns));
            writeln!(f, "{:>8}{raw:>10}{proto:>10}{am:>10}{:>12}", row.words, over.unwrap_or_default())?;
        }
        self.write_costs(f)?;
        self.write_bulk(f)
    }
}

/// The form of [`Chang::to_json`].
pub const SCHEMA: &str = "sidelane-study-chang/3";
/// Their Table 2 has 1 to 4 words; ours go on to what a short message takes.
const WORDS: [usize; 6] = [1, 2, 3, 4, 8, 16];
/// Polls that are timed together: one is as short as a reading of the clock.
const POLLS: u32 = 32;
/// Longer than any driver here takes to bring a message to the other side.
const APART_NS: u64 = 20_000;
/// Polls of a kind that are kept.
const SAMPLES_MAX: usize = 1 << 18;
/// Samples of every kind that there are at the end, however busy the machine: one interrupted call moves no median of them.
const SAMPLES_LEAST: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_what_the_tables_have() {
        let words = WORDS.map(|words| Words { words, raw_ns: Some(100.0), proto_ns: None, am_ns: Some(250.0) });
        // In the last row nothing can be told of the reply.
        let costs = WORDS.map(|words| Costs {
            words,
            request_ns: 600.0 + words as f64,
            reply_ns: if words == 16 { -1.0 } else { 62.0 },
            poll_empty_ns: 63.0,
            poll_message_ns: 64.0,
        });
        let bulk = bulk::SIZES.map(|size| Bulk {
            size,
            store_ns: 1e3,
            store_async_ns: 500.0,
            get_ns: 2e3,
            get_async_ns: 600.0,
        });
        let (schema, machine) = (SCHEMA.to_owned(), Machine::describe());
        let study =
            Chang { schema, machine, nic: NicKind::Shm, words: words.into(), costs: costs.into(), bulk: bulk.into() };
        let page = study.to_html();
        assert!(page.matches("<svg").count() == 3, "{page}");
        // A point for each figure: two layers and four calls by words, four kinds of bulk by size.
        let figures = 2 * WORDS.len() + 4 * WORDS.len() - 1 + 4 * bulk::SIZES.len();
        assert_eq!(page.matches("<circle").count(), figures, "{page}");
        assert!(page.contains("empty poll") && page.contains("async get") && page.contains("+150 %"), "{page}");
        // A row for each number of words, theirs beside ours as far as they have any.
        let text = study.to_string();
        let rows = WORDS.map(|words| text.find(&format!(" {} ", 600 + words)));
        assert!(rows.is_sorted() && rows[0].is_some(), "{text}");
        assert!(
            text.contains("604  (8200)") && text.contains("62  (4400)") && text.matches("(8200)").count() == 1,
            "{text}"
        );
    }
}
