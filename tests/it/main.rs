//! The program as its users meet it: the real binary, real SQLite databases, real directories. One file per verb or
//! misfortune; [`world`] has a folder to play in, [`program`] runs the binary, [`database`] makes and compares databases.
#![allow(clippy::unwrap_used)]

mod account;
mod advise;
mod backup;
mod bad_input;
mod bad_stores;
mod calibrate;
mod calibrated;
mod bench_matrix;
mod bench_places;
mod bench_volumes;
mod configuration;
mod copy;
mod copy_repositories;
#[cfg(any(feature = "mysql", feature = "mariadb"))]
mod copy_servers;
mod copy_stores;
mod copy_to;
mod copy_verdict;
mod database;
mod differential;
#[cfg(all(feature = "azure", feature = "gcs"))]
mod emulators;
mod estimate;
mod few_threads;
mod forge;
mod forged_manifests;
mod forged_media;
#[cfg(all(feature = "mariadb", feature = "mysql"))]
mod forged_open_sets;
#[cfg(any(feature = "mysql", feature = "mariadb"))]
mod foreseen_servers;
mod golden;
mod golden_log;
#[cfg(all(feature = "mariadb", feature = "mysql"))]
mod golden_servers;
mod heaps;
mod host_kills;
mod hidden_names;
mod hostile_media;
mod init;
mod inspect;
mod keys;
mod kills;
mod leftovers;
mod log;
mod log_follow;
mod log_follow_pace;
mod log_follow_repository;
mod log_sessions;
#[cfg(feature = "mariadb")]
mod lost_pages;
mod many_sets;
#[cfg(feature = "mariadb")]
mod mariadb;
#[cfg(feature = "mariadb")]
mod mariadb_refusals;
#[cfg(feature = "mariadb")]
mod mariadb_tables;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "mysql")]
mod mysql_differential;
#[cfg(feature = "mysql")]
mod mysql_other_engines;
mod mysql_refusals;
mod newest_point;
mod object_kept;
mod object_locks;
mod object_store;
mod output;
mod pipe;
mod program;
mod progress;
mod prune;
#[cfg(feature = "mysql")]
mod proxy;
mod published_model;
mod replace;
mod report;
mod repository;
mod repository_ids;
mod repository_in_stores;
mod repository_obstacles;
mod repository_places;
mod repository_proof;
mod repository_strange;
mod repository_times;
mod repository_unwritable;
mod restore;
mod restore_resume;
mod restore_steps;
#[cfg(all(feature = "mysql", feature = "mariadb"))]
mod servers_in_repositories;
mod signals;
mod slips;
mod small_disk;
mod small_memory;
mod source_changes;
mod sqlite_sources;
mod store_answers;
mod store_lives;
mod tasks;
#[cfg(all(feature = "mysql", feature = "mariadb"))]
mod table;
mod traced;
mod verify;
mod weaker_sets;
mod world;
