//! How does a configuration carry what is no setting? As an extension of it without entries: rules and functions know
//! the configuration that they are called with, and nobody can set what is in it by name.

/// Makes a type, which is `Default` and cloned with the configuration, an extension of this prefix.
macro_rules! carried {
    ($carried:ty, $prefix:literal) => {
        impl datafusion::common::config::ConfigExtension for $carried {
            const PREFIX: &'static str = $prefix;
        }

        impl datafusion::common::config::ExtensionOptions for $carried {
            fn as_any(&self) -> &dyn std::any::Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
                self
            }

            fn cloned(&self) -> Box<dyn datafusion::common::config::ExtensionOptions> {
                Box::new(self.clone())
            }

            fn set(&mut self, key: &str, _: &str) -> datafusion::error::Result<()> {
                let message = format!("there is no setting {}.{key}", $prefix);
                Err(datafusion::error::DataFusionError::Configuration(message))
            }

            fn entries(&self) -> Vec<datafusion::common::config::ConfigEntry> {
                vec![]
            }
        }
    };
}

pub(crate) use carried;
