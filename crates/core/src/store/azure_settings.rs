//! Where Azure's containers are, and the credentials for them: the variables that Azure's tools know, and a connection
//! string.
//!
//! Public sources: Azure Storage documentation ("Configure Azure Storage connection strings"; az storage, environment
//! variables).

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use crate::error::{Error, Result};

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const CONTAINER: &str = "AZURE_CONTAINER_NAME";
/// Names of the `az` program that the crate knows by another name.
const ALIASES: [(&str, &str); 2] =
    [("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"), ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")];
/// Variables that a connection string replaces.
const CONNECTED: [AzureConfigKey; 4] =
    [AzureConfigKey::AccountName, AzureConfigKey::AccessKey, AzureConfigKey::SasKey, AzureConfigKey::Endpoint];

/// How a container is opened.
pub(super) struct Settings {
    pub builder: MicrosoftAzureBuilder,
    pub account: String,
    /// `https://account.blob.core.windows.net`
    pub endpoint: String,
}

/// What the variables say.
///
/// # Errors
/// No account is named, or a setting asks for something that fullbore does not do.
pub(super) fn read(thing: &str, variables: &[(String, String)]) -> Result<Settings> {
    let get = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let connection = get(CONNECTION).filter(|text| !text.is_empty()).map(connected).transpose()?;
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in variables {
        let known = ALIASES.iter().find(|(alias, _)| alias == name).map_or(name.as_str(), |(_, known)| known);
        let key = known.to_ascii_lowercase().parse::<AzureConfigKey>();
        let Some(key) = key.ok().filter(|_| name.starts_with("AZURE_") && name != CONTAINER) else { continue };
        refuse(name, value, key)?;
        if connection.is_none() || !CONNECTED.contains(&key) {
            builder = builder.with_config(key, value);
        }
    }
    for (key, value) in connection.into_iter().flatten() {
        builder = builder.with_config(key, value);
    }
    let account = builder.get_config_value(&AzureConfigKey::AccountName).filter(|account| !account.is_empty());
    let account = account.ok_or_else(|| {
        let hint = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or other credentials), or \
        AZURE_STORAGE_CONNECTION_STRING";
        Error::usage(thing, "is in an Azure storage account, but no account is named", hint)
    })?;
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    Ok(Settings { builder, account, endpoint })
}

/// True when requests are not to be signed.
pub(super) fn is_anonymous(variables: &[(String, String)]) -> bool {
    variables.iter().any(|(name, value)| name == "AZURE_SKIP_SIGNATURE" && value.eq_ignore_ascii_case("true"))
}

/// Settings that fullbore would obey only in part.
fn refuse(name: &str, value: &str, key: AzureConfigKey) -> Result<()> {
    let is_set = !["", "false", "0"].contains(&value.to_ascii_lowercase().as_str());
    let (why, hint) = match key {
        AzureConfigKey::EncryptionKey => (
            "a key of your own would be sent with every request, also in every restore",
            "use --encrypt-to: it encrypts before anything leaves this machine",
        ),
        AzureConfigKey::UseEmulator => (
            "fullbore needs the address of the emulator",
            "set AZURE_STORAGE_ENDPOINT=http://127.0.0.1:10000/devstoreaccount1 and the account's name and key",
        ),
        AzureConfigKey::UseFabricEndpoint => ("Fabric is not supported", "name the endpoint of a storage account"),
        _ => return Ok(()),
    };
    if is_set { Err(Error::usage(name, why, hint)) } else { Ok(()) }
}

/// The settings in a connection string. It holds a key, so no message repeats it.
fn connected(text: &str) -> Result<Vec<(AzureConfigKey, String)>> {
    let wrong = |why: &str| {
        Error::usage(CONNECTION, why.to_owned(), "copy the whole string again from the account's page, in one line")
    };
    let (mut scheme, mut suffix, mut settings) = ("https", "core.windows.net", Vec::new());
    for pair in text.trim().split(';').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("is not a list of NAME=VALUE;"))?;
        match name.to_ascii_lowercase().as_str() {
            "accountname" => settings.push((AzureConfigKey::AccountName, value.to_owned())),
            "accountkey" => settings.push((AzureConfigKey::AccessKey, value.to_owned())),
            "sharedaccesssignature" => settings.push((AzureConfigKey::SasKey, value.to_owned())),
            "blobendpoint" => settings.push((AzureConfigKey::Endpoint, value.to_owned())),
            "defaultendpointsprotocol" => scheme = value,
            "endpointsuffix" => suffix = value,
            "usedevelopmentstorage" => {
                return Err(wrong(
                    "names an emulator without its address: write BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1",
                ));
            }
            // These are for queues, tables and files.
            _ => {}
        }
    }
    let of = |wanted| settings.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.clone());
    let endpoint = of(AzureConfigKey::Endpoint);
    let account = match (of(AzureConfigKey::AccountName), &endpoint) {
        (Some(account), _) => account,
        // With a signature, only the address names the account.
        (None, Some(endpoint)) => {
            let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, rest)| rest);
            let account = host.split(['.', '/', ':']).next().unwrap_or_default().to_owned();
            settings.push((AzureConfigKey::AccountName, account.clone()));
            account
        }
        (None, None) => return Err(wrong("has no AccountName")),
    };
    if endpoint.is_none() {
        settings.push((AzureConfigKey::Endpoint, format!("{scheme}://{account}.blob.{suffix}")));
    }
    Ok(settings)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Settings> {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read("az://media", &variables)
    }

    fn key_of(settings: &Settings) -> Option<String> {
        settings.builder.get_config_value(&AzureConfigKey::AccessKey)
    }

    #[test]
    fn account_and_key_are_read_under_the_names_of_the_crate_and_of_the_az_program() {
        for [account, key] in [
            ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"],
            ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY"],
            ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCESS_KEY"],
        ] {
            let settings = with(&[(account, "shop"), (key, "c2VrcmV0"), ("AZURE_CONTAINER_NAME", "other")]).unwrap();
            assert_eq!((settings.account.as_str(), key_of(&settings).as_deref()), ("shop", Some("c2VrcmV0")));
            assert_eq!(settings.endpoint, "https://shop.blob.core.windows.net");
        }
        let error = with(&[]).err().unwrap().to_string();
        assert!(error.contains("az://media") && error.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{error}");
    }

    #[test]
    fn a_connection_string_stands_for_account_key_and_endpoint() {
        let text =
            "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=c2VrcmV0PT0=;EndpointSuffix=core.example";
        let settings = with(&[(CONNECTION, text), ("AZURE_STORAGE_KEY", "b3RoZXI=")]).unwrap();
        assert_eq!(settings.endpoint, "https://shop.blob.core.example");
        assert_eq!(key_of(&settings).as_deref(), Some("c2VrcmV0PT0="));
        let text = "BlobEndpoint=http://127.0.0.1:1/shop;AccountName=shop;AccountKey=c2VrcmV0;QueueEndpoint=http://q/";
        assert_eq!(with(&[(CONNECTION, text)]).unwrap().endpoint, "http://127.0.0.1:1/shop");
        let settings =
            with(&[(CONNECTION, "BlobEndpoint=https://shop.blob.x/;SharedAccessSignature=sv=1&sig=s%3D")]).unwrap();
        assert_eq!((settings.account.as_str(), key_of(&settings)), ("shop", None));
        assert_eq!(settings.builder.get_config_value(&AzureConfigKey::SasKey).as_deref(), Some("sv=1&sig=s%3D"));
    }

    #[test]
    fn incomplete_settings_are_refused_and_no_key_is_printed() {
        for (name, value, hint) in [
            ("AZURE_STORAGE_ENCRYPTION_KEY", "sekret", "--encrypt-to"),
            ("AZURE_STORAGE_USE_EMULATOR", "true", "AZURE_STORAGE_ENDPOINT"),
            ("AZURE_USE_FABRIC_ENDPOINT", "true", "Fabric"),
            (CONNECTION, "AccountKey=sekret", "AccountName"),
            (CONNECTION, "sekret", "NAME=VALUE"),
            (CONNECTION, "UseDevelopmentStorage=true", "BlobEndpoint"),
        ] {
            let error = with(&[("AZURE_STORAGE_ACCOUNT_NAME", "shop"), (name, value)]).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(hint) && !error.contains("sekret"), "{error}");
        }
        assert!(with(&[("AZURE_STORAGE_ACCOUNT", "shop"), ("AZURE_STORAGE_USE_EMULATOR", "false")]).is_ok());
    }
}
