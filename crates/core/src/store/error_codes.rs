//! Answers of Azure and Google, in words that say what to do. Answers of S3 are in `failure`, also those that Azure and
//! Google give too.
//!
//! Public sources: Azure Blob Storage REST API ("Blob service error codes", "Common REST API error codes"), Cloud
//! Storage documentation ("HTTP status and error codes for XML").

/// A code or a part of a message, its cause, and the next step.
pub(super) type Words = (&'static str, &'static str, &'static str);

const AZURE: [Words; 21] = [
    ("ContainerNotFound", "there is no such container", "check its name and AZURE_STORAGE_ACCOUNT_NAME, or create it"),
    ("ContainerBeingDeleted", "the container is being deleted", "wait until it is gone, or name another container"),
    (
        "AuthenticationFailed",
        "the key or the signature does not belong to the account, or has expired",
        "check AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, and this machine's clock",
    ),
    (
        "AuthorizationFailure",
        "the key or the signature does not belong to the account, or its network rules refuse this machine",
        "check AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, and the firewall of the account",
    ),
    (
        "InvalidAuthenticationInfo",
        "the account does not accept these credentials",
        "check AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or the token",
    ),
    ("NoAuthenticationInformation", "there are no credentials", "set AZURE_STORAGE_ACCOUNT_KEY"),
    (
        "AuthorizationPermissionMismatch",
        "the account may not do this",
        "it needs the role Storage Blob Data Contributor, or a signature with the rights to read, write, \
        create, delete and list",
    ),
    (
        "KeyBasedAuthenticationNotPermitted",
        "the account does not accept keys",
        "set AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID, or run where a managed identity is",
    ),
    ("Invalid Access Key", "the account's key is not valid: it is not in base64", "check AZURE_STORAGE_ACCOUNT_KEY"),
    (
        "performing token request",
        "there are no credentials",
        "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID with its other variables, \
        or run where a managed identity is",
    ),
    ("AccountIsDisabled", "the account is disabled", "look at it in the portal"),
    (
        "InvalidBlobOrBlock",
        "another program has put blocks under this name",
        "name another key: Azure removes the blocks within a week",
    ),
    ("InvalidBlockList", "an uploaded block is not there", "try again; another program may have aborted the upload"),
    ("BlockCountExceedsLimit", "a blob has more blocks than Azure takes", "use more --stripes"),
    ("Crc64Mismatch", "a block arrived changed", "check the network, and run it again"),
    (
        "BlobImmutableDueToPolicy",
        "a policy of the container keeps it",
        "name another key, or wait until the policy releases it",
    ),
    ("LeaseIdMissing", "another program holds a lease on it", "break the lease, or name another key"),
    (
        "ServerBusy",
        "the account asks to slow down, even after many retries",
        "use fewer --stripes or --throttle, or try again later",
    ),
    (
        "Connection refused",
        "nothing listens at the endpoint",
        "check AZURE_STORAGE_ENDPOINT, and whether the store runs",
    ),
    (
        "dns error",
        "the name of the endpoint cannot be resolved",
        "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
    ),
    (
        "certificate",
        "the endpoint's certificate is not trusted",
        "set SSL_CERT_FILE to the file with the authority's certificate",
    ),
];

const GOOGLE: [Words; 10] = [
    ("NoSuchBucket", "there is no such bucket", "check its name, or create it"),
    (
        "AccessDenied",
        "the account may not do this",
        "it needs the role Storage Object Admin on this bucket, or the rights to get, create, delete and list \
        objects and multipart uploads",
    ),
    ("AuthenticationRequired", "the service does not know this account", "check GOOGLE_APPLICATION_CREDENTIALS"),
    ("InvalidAuthentication", "the token is not valid", "check GOOGLE_APPLICATION_CREDENTIALS"),
    (
        "service account file",
        "the file with the account's key cannot be read",
        "check GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SERVICE_ACCOUNT, and what is in the file",
    ),
    (
        "performing token request",
        "there are no credentials, or the service refuses them",
        "set GOOGLE_APPLICATION_CREDENTIALS to the file with the account's key, or run where an account is attached",
    ),
    ("ObjectUnderActiveHold", "a hold keeps it", "name another key, or release the hold"),
    ("Connection refused", "nothing listens at the endpoint", "check STORAGE_EMULATOR_HOST and GOOGLE_BASE_URL"),
    ("dns error", "the name of the endpoint cannot be resolved", "check the network, and GOOGLE_BASE_URL"),
    (
        "certificate",
        "the endpoint's certificate is not trusted",
        "set SSL_CERT_FILE to the file with the authority's certificate",
    ),
];

/// The words of the service that `thing` is in, by its URL.
pub(super) fn of(thing: &str) -> &'static [Words] {
    match thing.split_once("://") {
        Some(("az", _)) => &AZURE,
        Some(("gs", _)) => &GOOGLE,
        _ => &[],
    }
}

/// A hint that names a variable of S3, with that of the service that `thing` is in.
pub(super) fn named(thing: &str, hint: &str) -> String {
    match thing.split_once("://") {
        Some(("az", _)) => hint.replace("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"),
        Some(("gs", _)) => hint.replace("AWS_ENDPOINT_URL", "GOOGLE_BASE_URL"),
        _ => hint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use object_store::Error as StoreError;

    use super::super::explained;
    use super::*;

    #[test]
    fn the_same_failure_is_told_in_the_words_of_each_service() {
        let told = |thing: &str, text: &str| {
            let error = StoreError::Generic { store: "x", source: text.to_owned().into() };
            explained("write", thing, &error).to_string()
        };
        for (thing, text, hint) in [
            ("az://c/k", "<Code>ContainerNotFound</Code><Message>x</Message>", "no such container"),
            ("az://c/k", "Connection refused", "AZURE_STORAGE_ENDPOINT"),
            ("az://c/k", "reset by peer", "AZURE_STORAGE_ENDPOINT"),
            ("gs://b/k", "<Code>AccessDenied</Code>", "Storage Object Admin"),
            ("gs://b/k", "connection closed", "GOOGLE_BASE_URL"),
            ("s3://b/k", "connection closed", "AWS_ENDPOINT_URL"),
            ("gs://b/k", "<Code>SlowDown</Code>", "--throttle"),
        ] {
            let told = told(thing, text);
            assert!(told.contains(hint) && told.contains(thing), "{told}");
            assert!(thing.starts_with("s3") || !told.contains("AWS_"), "{told}");
        }
        assert!(AZURE.iter().chain(&GOOGLE).all(|(_, why, hint)| !why.is_empty() && !hint.is_empty()));
    }
}
