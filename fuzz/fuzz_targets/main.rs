//! All fuzz targets in one program: so the dependencies are linked once. `FULLBORE_FUZZ_TARGET` names the target of a run.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// The modules, and their functions by name.
macro_rules! targets {
    ($($name:ident)*) => {
        $(mod $name;)*
        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::run)),*];
    };
}

targets! {
    codecs
    compression
    device
    family
    family_block
    family_footer
    family_header
    family_index
    family_manifest
    family_trailer
    foreign_layout
    innodb_page
    key_file
    mariadb_redo_head
    mariadb_redo_log
    mssqlbak
    mysql_clone
    mysql_login
    mysql_rows
    name_template
    pool
    sidecar
    sqlite_btree
    sqlite_freelist
    sqlite_header
    sqlite_log
    sqlite_log_set
    sqlite_wal_index
    sqlserver_bak
    sqlserver_page_record
    sqlserver_row_value
    store_answer
    tsql
    uploaded_object
    xpress
}

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("FULLBORE_FUZZ_TARGET").expect("FULLBORE_FUZZ_TARGET names a target");
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("{wanted} is not a target")).1
});

fuzz_target!(|input: &[u8]| CHOSEN(input));
