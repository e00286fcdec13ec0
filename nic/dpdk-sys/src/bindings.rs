//! Generated from `shim/shim.h` by the test `bindings`: do not edit.
//! `SIDELANE_WRITE_BINDINGS=1 cargo test -p sidelane-dpdk-sys --test bindings` writes it anew.

pub const SL_QUEUES_MAX: u32 = 8;
pub const SL_LEFT_MAX: u32 = 512;
pub const SL_CACHE_NONE: u32 = 4294967295;
pub const SL_HEADROOM: u32 = 128;
pub const SL_FLAGS_ATTACHED: u64 = 6917529027641081856;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_mbuf {
    pub buffer: *mut u8,
    pub address: [u8; 8usize],
    pub data_offset: u16,
    pub references: u16,
    pub segments: u16,
    pub port: u16,
    pub flags: u64,
    pub kind: [u8; 4usize],
    pub frame_len: u32,
    pub data_len: u16,
    pub tags: [u8; 12usize],
    pub buffer_len: u16,
    pub pool: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug)]
pub struct sl_queue {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_port_info {
    pub mac: [u8; 6usize],
    pub mtu_max: u16,
    pub rx_frame_max: u32,
    pub rx_offloads: u64,
    pub tx_offloads: u64,
    pub numa_node: i32,
    pub rx_queues_max: u16,
    pub tx_queues_max: u16,
    pub rx_descriptors_min: u16,
    pub tx_descriptors_min: u16,
    pub driver: [::std::os::raw::c_char; 64usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_port_config {
    pub mtu: u16,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub rx_descriptors: u16,
    pub tx_descriptors: u16,
    pub rx_interrupt: u8,
    pub lends: u8,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_link {
    pub up: u8,
    pub mbit_per_s: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_stats {
    pub rx_frames: u64,
    pub tx_frames: u64,
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub rx_no_mbuf: u64,
    pub rx_left: u64,
    pub tx_errors: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_state {
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub promiscuous: u8,
    pub all_multicast: u8,
    pub mbufs_free: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_xstat {
    pub name: [::std::os::raw::c_char; 64usize],
    pub value: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct sl_dpdk {
    pub size: u64,
    pub version: ::std::option::Option<unsafe extern "C" fn() -> *const ::std::os::raw::c_char>,
    pub driver_dir: ::std::option::Option<unsafe extern "C" fn() -> *const ::std::os::raw::c_char>,
    pub eal_up: ::std::option::Option<
        unsafe extern "C" fn(
            argc: ::std::os::raw::c_int,
            argv: *mut *mut ::std::os::raw::c_char,
            on_log: ::std::option::Option<unsafe extern "C" fn(text: *const ::std::os::raw::c_char, len: u64)>,
        ) -> ::std::os::raw::c_int,
    >,
    pub attach: ::std::option::Option<
        unsafe extern "C" fn(
            bus: *const ::std::os::raw::c_char,
            name: *const ::std::os::raw::c_char,
            args: *const ::std::os::raw::c_char,
            pair: ::std::os::raw::c_int,
            port: *mut u16,
        ) -> ::std::os::raw::c_int,
    >,
    pub detach: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub port_info:
        ::std::option::Option<unsafe extern "C" fn(port: u16, info: *mut sl_port_info) -> ::std::os::raw::c_int>,
    pub pool_create: ::std::option::Option<
        unsafe extern "C" fn(
            name: *const ::std::os::raw::c_char,
            mbufs: u32,
            cache: u32,
            room: u16,
            numa_node: ::std::os::raw::c_int,
            error: *mut ::std::os::raw::c_int,
        ) -> *mut ::std::os::raw::c_void,
    >,
    pub pool_free: ::std::option::Option<unsafe extern "C" fn(pool: *mut ::std::os::raw::c_void)>,
    pub port_start: ::std::option::Option<
        unsafe extern "C" fn(
            port: u16,
            config: *mut sl_port_config,
            pool: *mut ::std::os::raw::c_void,
        ) -> ::std::os::raw::c_int,
    >,
    pub port_restart: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub port_stop: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub link: ::std::option::Option<unsafe extern "C" fn(port: u16, link: *mut sl_link)>,
    pub removed: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub lives: ::std::option::Option<unsafe extern "C" fn(port: u16) -> *const u32>,
    pub dialling: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub left: ::std::option::Option<unsafe extern "C" fn(port: u16) -> u32>,
    pub stats: ::std::option::Option<unsafe extern "C" fn(port: u16, stats: *mut sl_stats) -> ::std::os::raw::c_int>,
    pub state: ::std::option::Option<
        unsafe extern "C" fn(
            port: u16,
            pool: *mut ::std::os::raw::c_void,
            state: *mut sl_state,
        ) -> ::std::os::raw::c_int,
    >,
    pub xstats:
        ::std::option::Option<unsafe extern "C" fn(port: u16, into: *mut sl_xstat, max: u32) -> ::std::os::raw::c_int>,
    pub rules: ::std::option::Option<unsafe extern "C" fn(port: u16) -> ::std::os::raw::c_int>,
    pub rule_add: ::std::option::Option<
        unsafe extern "C" fn(
            port: u16,
            mac: *const u8,
            own: ::std::os::raw::c_int,
            ethertype: u16,
            queue: u16,
            rule: *mut *mut ::std::os::raw::c_void,
        ) -> ::std::os::raw::c_int,
    >,
    pub rule_remove: ::std::option::Option<
        unsafe extern "C" fn(port: u16, mac: *const u8, own: ::std::os::raw::c_int, rule: *mut ::std::os::raw::c_void),
    >,
    pub rx_fd: ::std::option::Option<unsafe extern "C" fn(port: u16, queue: u16) -> ::std::os::raw::c_int>,
    pub rx_arm: ::std::option::Option<unsafe extern "C" fn(port: u16, queue: u16) -> ::std::os::raw::c_int>,
    pub rx_disarm: ::std::option::Option<unsafe extern "C" fn(port: u16, queue: u16) -> ::std::os::raw::c_int>,
    pub cache_take: ::std::option::Option<unsafe extern "C" fn() -> u32>,
    pub cache_give_back: ::std::option::Option<unsafe extern "C" fn(pool: *mut ::std::os::raw::c_void, number: u32)>,
    pub cache_number: ::std::option::Option<unsafe extern "C" fn() -> *mut u32>,
    pub queue: ::std::option::Option<unsafe extern "C" fn(port: u16, number: u16) -> *mut sl_queue>,
    pub rx_burst: ::std::option::Option<
        unsafe extern "C" fn(queue: *mut sl_queue, frames: *mut *mut sl_mbuf, max: u16, life: u32) -> u16,
    >,
    pub tx_burst: ::std::option::Option<
        unsafe extern "C" fn(queue: *mut sl_queue, frames: *mut *mut sl_mbuf, count: u16, life: u32) -> u16,
    >,
    pub alloc_frames: ::std::option::Option<
        unsafe extern "C" fn(
            pool: *mut ::std::os::raw::c_void,
            frames: *mut *mut sl_mbuf,
            count: u32,
        ) -> ::std::os::raw::c_int,
    >,
    pub free_frames: ::std::option::Option<unsafe extern "C" fn(frames: *mut *mut sl_mbuf, count: u32)>,
}
