//! One side publishes memory, the other one writes into it, reads from it and counts in it. Two endpoints on the simulated
//! fabric: no privilege, no network.
//!
//! `cargo run -p sidelane-proto --example put`

use sidelane_nic::LinkAddr;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, MemNic};
use sidelane_proto::{Config, Endpoint, Event, PutHow, RemoteKey, Rights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fabric = Fabric::new(1);
    let mut alice = Endpoint::new(fabric.nic_at(0, NodeConfig::default()), Config::default());
    let mut bob = Endpoint::new(fabric.nic_at(1, NodeConfig::default()), Config::default());
    let to_bob = alice.connect(LinkAddr::Mem { node: 1 })?;
    let to_alice = loop {
        turn(&mut alice, &mut bob);
        if let Some(Event::Connected { peer, .. }) = bob.poll_event() {
            break peer;
        }
    };

    // Bob shares a page, and tells Alice its key by a message.
    let page = bob.register(vec![0; 4096]);
    let key = bob.publish(page, Rights::ALL, Some(to_alice))?;
    bob.send(to_alice, &key.to_bytes())?;
    let key = loop {
        turn(&mut alice, &mut bob);
        if let Some(bytes) = alice.recv(|_, message| message.try_into().map(RemoteKey::from_bytes)) {
            break bytes?;
        }
    };

    // Alice writes; the signal tells Bob that everything before it is in place.
    alice.put(to_bob, &key, 100, b"put here", PutHow::default())?;
    let last = alice.put(to_bob, &key, 200, b"and there", PutHow::SIGNAL)?;
    while bob.signals(page) != Some(1) {
        turn(&mut alice, &mut bob);
    }
    let memory = bob.region(page).expect("still registered");
    assert_eq!((&memory[100..108], &memory[200..209]), (&b"put here"[..], &b"and there"[..]));
    while !alice.is_done(last) {
        turn(&mut alice, &mut bob);
    }

    // Alice reads back, and counts in a word that Bob and others may count in too.
    let landing = alice.register(vec![0; 8]);
    let get = alice.get(to_bob, &key, 100, landing, 0..8)?;
    let add = alice.fetch_add(to_bob, &key, 0, 5)?;
    let mut before = None;
    while !(alice.is_done(get) && alice.is_done(add)) || before.is_none() {
        turn(&mut alice, &mut bob);
        while let Some(event) = alice.poll_event() {
            if let Event::Fetched { value, .. } = event {
                before = Some(value);
            }
        }
    }
    assert_eq!(alice.region(landing), Some(&b"put here"[..]));
    assert_eq!(before, Some(0));

    // Bob takes his memory back: from now on nothing of Alice's reaches it.
    bob.unregister(page)?;
    let Some(Event::Unregistered { memory: Some(memory), .. }) = bob.poll_event() else {
        return Err("nothing needs the page any more".into());
    };
    println!("{}, {}, counted to {}", show(&memory[100..108]), show(&memory[200..209]), memory[0]);
    Ok(())
}

fn turn(alice: &mut Endpoint<MemNic>, bob: &mut Endpoint<MemNic>) {
    alice.poll();
    bob.poll();
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
