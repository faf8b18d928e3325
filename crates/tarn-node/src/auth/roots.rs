//! Which places of the server may be attached?
//!
//! With `attach_roots`: what lies in one of them, symbolic links resolved. Without: anything while there are no users
//! (the server then listens on loopback alone), nothing when there are. Never what the kernel shows as files, and never
//! the data folder or what it is in.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::settings::NodeSettings;
use crate::stores::StoreLocation;

/// Files that are none.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Whether a place that somebody named may be attached. Looks at the file system.
///
/// Errors: `Denied`, with what to do.
pub fn check(settings: &NodeSettings, has_users: bool, url: &str) -> Result<()> {
    let location = resolved(StoreLocation::parse(url)?);
    if let StoreLocation::Folder(folder) = &location {
        let data = resolve(&settings.data_dir);
        if KERNEL.iter().any(|kernel| folder.starts_with(kernel)) {
            return Err(refused(&location, "it shows the kernel's state, not files"));
        }
        if folder.starts_with(&data) || data.starts_with(folder) {
            return Err(refused(&location, "the server's data folder lies there"));
        }
    }
    let roots = roots(settings)?;
    if roots.is_empty() && !has_users {
        return Ok(());
    }
    if roots.iter().any(|root| is_in(&location, root)) {
        return Ok(());
    }
    let what = match roots.is_empty() {
        true => "no folder or bucket is configured for it".to_owned(),
        false => format!("it is in none of {}", settings.attach_roots),
    };
    Err(refused(&location, &what).with_hint(
        "the setting attach_roots lists the folders and URLs below which may be attached, with commas between them: \
         attach_roots = \"/data/logs, s3://bucket/app\"",
    ))
}

/// Of the setting.
///
/// Errors: one is no place.
pub fn roots(settings: &NodeSettings) -> Result<Vec<StoreLocation>> {
    let texts = settings.attach_roots.split(',').map(str::trim).filter(|text| !text.is_empty());
    texts.map(|text| StoreLocation::parse_for("use as a root of attach_roots", text).map(resolved)).collect()
}

fn refused(location: &StoreLocation, why: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{location} may not be attached: {why}"))
}

fn is_in(location: &StoreLocation, root: &StoreLocation) -> bool {
    match (location, root) {
        (StoreLocation::Folder(folder), StoreLocation::Folder(root)) => folder.starts_with(root),
        (
            StoreLocation::Bucket { cloud, bucket, prefix },
            StoreLocation::Bucket { cloud: root_cloud, bucket: root_bucket, prefix: root_prefix },
        ) => cloud == root_cloud && bucket == root_bucket && prefix.prefix_matches(root_prefix),
        _ => false,
    }
}

fn resolved(location: StoreLocation) -> StoreLocation {
    match location {
        StoreLocation::Folder(folder) => StoreLocation::Folder(resolve(&folder)),
        bucket => bucket,
    }
}

/// Without symbolic links and `..`; of what is not there, the part that is.
fn resolve(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    for ancestor in absolute.ancestors() {
        if let (Ok(there), Ok(rest)) = (ancestor.canonicalize(), absolute.strip_prefix(ancestor)) {
            // What is not there cannot be stepped out of.
            let mut found = there;
            for part in rest.components() {
                match part {
                    std::path::Component::ParentDir => drop(found.pop()),
                    part => found.push(part),
                }
            }
            return found;
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_a_root() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["data/lake", "logs/app", "logs2"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("logs2"), dir.path().join("logs/out")).unwrap();
        std::os::unix::fs::symlink("/proc", dir.path().join("logs/kernel")).unwrap();
        let mut settings = NodeSettings { data_dir: dir.path().join("data"), ..NodeSettings::default() };
        let at = |path: &str| dir.path().join(path).display().to_string();
        let may = |settings: &NodeSettings, has_users, url: &str| check(settings, has_users, url).is_ok();

        for never in ["data", "data/lake", "", "logs/kernel", "logs/../data/lake"] {
            assert!(!may(&settings, false, &at(never)), "{never}");
        }
        for never in ["/", "/proc", "/proc/self", "/sys", "/dev/shm", "file:///proc", "/tmp/../proc"] {
            assert!(!may(&settings, false, never), "{never}");
        }
        assert!(may(&settings, false, &at("logs")) && may(&settings, false, "s3://bucket/x"));
        let refused = check(&settings, true, &at("logs")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.hint().unwrap().contains("attach_roots"), "{refused}");
        assert!(!may(&settings, true, "s3://bucket/x"));

        settings.attach_roots = format!("{}, s3://bucket/app", at("logs"));
        for has_users in [false, true] {
            for inside in [at("logs"), at("logs/app"), at("logs/none/yet"), "s3://bucket/app/x".into()] {
                assert!(may(&settings, has_users, &inside), "{inside}");
            }
            let outside = [at("logs2"), at("logs/out"), at("logs/../logs2"), at("logs/none/../../logs2"), at("data")];
            for outside in
                outside.iter().map(String::as_str).chain(["s3://bucket/apple", "s3://other/app", "gs://bucket/app"])
            {
                assert!(!may(&settings, has_users, outside), "{outside}");
            }
        }
    }
}
