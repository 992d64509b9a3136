//! The fuzz targets: a file for each, and its line here.

/// Gives the names of all targets to a macro.
#[macro_export]
macro_rules! for_each_target {
    ($to:ident) => {
        $to! {
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
            mysql_binlog
            mysql_clone
            mysql_login
            mysql_rows
            name_template
            pool
            s3_request
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
    };
}

/// The modules, and their functions by name.
macro_rules! targets {
    ($($name:ident)*) => {
        $(pub mod $name;)*

        /// A target's name and its function.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::run)),*];
    };
}

for_each_target!(targets);
