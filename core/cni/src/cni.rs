use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{join, join_all};
use serde_json::{Map, Value, json};

use crate::{
    attachment::{Attachment, is_interface_name},
    cache::{Cache, Record},
    chain::{Chain, run_for_network},
    config::Config,
    directory::Directory,
    error::{Error, Result},
    exec::Runner,
    loopback,
    negotiate::Versions,
    network::Network,
    result::NetworkResult,
    setup::{Recorded, Setup},
    version::SpecVersion,
};

/// The name of the loopback network in records of other runtimes, and its only plugin.
const LOOPBACK: (&str, &str) = ("cni-loopback", "loopback");
/// `NSFS_MAGIC`: the file system of the kernel's namespace files.
const NSFS: i128 = 0x6e73_6673;

/// Attaches sandboxes to the configured networks.
///
/// Cheap to clone. It does not order calls about one sandbox: the caller does not set one up and remove it at
/// the same time.
#[derive(Clone, Debug)]
pub struct Cni(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    runner: Runner,
    directory: Directory,
    cache: Cache,
    versions: Versions,
}

/// A network with the version it is used with and its interface in the sandbox.
struct Member {
    network: Network,
    version: SpecVersion,
    ifname: String,
}

/// What one network is told when it is taken off or checked.
struct Job {
    member: Member,
    record: Option<Record>,
    netns: PathBuf,
    args: Vec<(String, String)>,
    capabilities: Map<String, Value>,
}

impl Cni {
    /// A handle with these settings. Nothing is read yet: the directories may be made later.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that can never work.
    pub fn new(config: Config) -> Result<Self> {
        if !is_interface_name(&format!("{}0", config.prefix)) {
            return Err(Error::Invalid(format!("prefix {:?} cannot begin the name of an interface", config.prefix)));
        }
        if config.bin_dirs.is_empty() {
            return Err(Error::Invalid("no directory of network plugins is configured".into()));
        }
        Ok(Self(Arc::new(Inner {
            runner: Runner::new(config.bin_dirs.clone(), config.timeout)?,
            directory: Directory::new(config.conf_dir.clone(), config.max_conf_num),
            cache: Cache::new(&config.cache_dir),
            versions: Versions::default(),
            config,
        })))
    }

    /// The networks as they are configured now.
    ///
    /// # Errors
    /// [`Error::NoConfig`] and [`Error::BadConfig`].
    pub async fn networks(&self) -> Result<Arc<Vec<Network>>> {
        self.blocking(|inner| inner.directory.networks()).await
    }

    /// Whether sandboxes can be attached: there are networks, their plugins are there, and those of version 1.1.0
    /// say that they are ready.
    ///
    /// # Errors
    /// What keeps them from it, with the directory searched.
    pub async fn status(&self) -> Result<()> {
        let networks = self.networks().await?;
        for network in networks.iter() {
            for plugin in &network.plugins {
                self.0.runner.find(&plugin.kind)?;
            }
            if network.highest() >= SpecVersion::GC_AND_STATUS {
                let version = self.0.versions.choose(&self.0.runner, network).await?;
                if version >= SpecVersion::GC_AND_STATUS {
                    run_for_network(&self.0.runner, network, version, "STATUS", &Map::new()).await?;
                }
            }
        }
        Ok(())
    }

    /// The versions of the specification that a plugin says it speaks.
    ///
    /// # Errors
    /// [`Error::PluginMissing`] and [`Error::Plugin`].
    pub async fn plugin_versions(&self, plugin: &str) -> Result<BTreeSet<SpecVersion>> {
        self.0.versions.of(&self.0.runner, plugin).await
    }

    /// Attaches a sandbox to the loopback interface and to all networks. If one of them fails, all of them are
    /// taken off again; where that fails too, the record of the attachment stays for [`Cni::remove`]. It stays also
    /// if the call is dropped before its end, which kills the plugins that run.
    ///
    /// # Errors
    /// The failure of the first network, in their order.
    pub async fn setup(&self, attachment: &Attachment) -> Result<Setup> {
        attachment.validate()?;
        let networks = self.networks().await?;
        let capabilities = attachment.capabilities.by_name();
        let mut members = Vec::with_capacity(networks.len());
        for (index, network) in networks.iter().enumerate() {
            let version = self.0.versions.choose(&self.0.runner, network).await?;
            members.push(Member { network: network.clone(), version, ifname: self.ifname(index) });
        }
        let (lo, added) = if self.0.config.setup_serially {
            let lo = self.loopback(attachment).await;
            let mut added = Vec::new();
            for member in members.iter().take_while(|_| lo.is_ok()) {
                added.push(self.add(member, attachment, &capabilities).await);
                if added.last().is_some_and(|last| last.1.is_err()) {
                    break;
                }
            }
            (lo, added)
        } else {
            let all = join_all(members.iter().map(|member| self.add(member, attachment, &capabilities)));
            join(self.loopback(attachment), all).await
        };
        let mut failure = lo.err();
        let mut results = Vec::new();
        let mut last = Vec::new();
        for (raw, outcome) in added {
            match outcome {
                Ok(result) => results.push((result, raw.clone().unwrap_or(Value::Null))),
                Err(error) => failure = failure.or(Some(error)),
            }
            last.push(raw);
        }
        if let Some(error) = failure {
            self.roll_back(attachment, &capabilities, members, last).await;
            return Err(error);
        }
        Ok(Setup::new(results, &self.ifname(0), self.0.config.ip_preference))
    }

    /// Takes a sandbox off all networks it was attached to, as they were configured then. What is gone already is
    /// no failure: neither the network namespace, nor the record, nor the configuration need be there.
    ///
    /// Every network is tried, and every plugin of it. What failed is recorded still, so that it can be tried again.
    ///
    /// # Errors
    /// All failures.
    pub async fn remove(&self, attachment: &Attachment) -> Result<()> {
        attachment.validate()?;
        let jobs = self.jobs(attachment).await?;
        let id = &attachment.id;
        let mut errors = Vec::new();
        if self.0.config.setup_serially {
            for job in jobs.into_iter().rev() {
                errors.extend(self.delete(id, job).await.err());
            }
        } else {
            let outcomes = join_all(jobs.into_iter().map(|job| self.delete(id, job))).await;
            errors.extend(outcomes.into_iter().filter_map(Result::err));
        }
        // Nothing of the loopback interface outlives its namespace; other runtimes record it.
        let owned = id.clone();
        self.blocking(move |inner| inner.cache.remove(LOOPBACK.0, &owned, "lo")).await?;
        Error::all(errors)
    }

    /// Asks the plugins whether the attachment is still as they made it.
    ///
    /// # Errors
    /// All failures; [`Error::CheckUnsupported`] for a network whose version cannot say.
    pub async fn check(&self, attachment: &Attachment) -> Result<()> {
        attachment.validate()?;
        let mut errors = Vec::new();
        for job in self.jobs(attachment).await? {
            let result = job.record.as_ref().and_then(|record| record.result.as_ref());
            let mut chain = job.chain(&self.0.runner, &attachment.id);
            chain.netns = &attachment.netns;
            errors.extend(chain.check(result).await.err());
        }
        Error::all(errors)
    }

    /// Takes off what is recorded for sandboxes other than these, and lets plugins of version 1.1.0 free what
    /// belongs to others. Only configured networks that permit it are touched; whoever else attaches to them has
    /// to be among the valid ones.
    ///
    /// # Errors
    /// All failures; every network is tried.
    pub async fn gc(&self, valid: &[impl AsRef<str>]) -> Result<()> {
        let valid: BTreeSet<&str> = valid.iter().map(AsRef::as_ref).collect();
        let networks = self.networks().await?;
        let records = self.blocking(|inner| inner.cache.list(None)).await?;
        let mut errors = Vec::new();
        for (index, network) in networks.iter().enumerate().filter(|(_, network)| !network.disable_gc) {
            let of_network = || records.iter().filter(|record| record.network_name == network.name);
            for record in of_network().filter(|record| !valid.contains(record.container_id.as_str())) {
                let job = self.job(&Attachment::default(), record.clone(), network);
                errors.extend(self.delete(&record.container_id, job).await.err());
            }
            errors.extend(self.gc_plugins(network, &valid, &self.ifname(index), of_network()).await.err());
        }
        Error::all(errors)
    }

    /// What is recorded, of all sandboxes and of all who share the directory of records.
    ///
    /// # Errors
    /// [`Error::Cache`].
    pub async fn recorded(&self) -> Result<Vec<Recorded>> {
        let records = self.blocking(|inner| inner.cache.list(None)).await?;
        let show = |record: Record| Recorded {
            id: record.container_id,
            network: record.network_name,
            ifname: record.if_name,
            netns: record.netns,
            args: record.cni_args,
            complete: record.result.is_some(),
        };
        Ok(records.into_iter().map(show).collect())
    }

    /// The settings and networks as `crictl info` shows them, with the names that the reference gives them.
    /// Without a usable configuration the networks are none.
    pub async fn configs(&self) -> Value {
        let networks = self.networks().await.unwrap_or_default();
        let show = |(index, network): (usize, &Network)| {
            let plugins = network.plugins.iter().map(
                |plugin| json!({"Network": plugin.config, "Source": Value::Object(plugin.config.clone()).to_string()}),
            );
            json!({
                "Config": {
                    "Name": network.name,
                    "CNIVersion": network.highest().to_string(),
                    "Plugins": plugins.collect::<Vec<_>>(),
                    "Source": Value::Object(network.source().clone()).to_string(),
                },
                "IFName": self.ifname(index),
            })
        };
        json!({
            "PluginDirs": self.0.runner.dirs(),
            "PluginConfDir": self.0.config.conf_dir,
            "PluginMaxConfNum": self.0.config.max_conf_num,
            "Prefix": self.0.config.prefix,
            "Networks": networks.iter().enumerate().map(show).collect::<Vec<_>>(),
        })
    }

    fn ifname(&self, index: usize) -> String {
        format!("{}{index}", self.0.config.prefix)
    }

    async fn loopback(&self, attachment: &Attachment) -> Result<()> {
        if !self.0.config.use_internal_loopback && self.0.runner.find(LOOPBACK.1).is_ok() {
            let text = format!(r#"{{"cniVersion":"0.3.1","name":"{}","type":"{}"}}"#, LOOPBACK.0, LOOPBACK.1);
            let network = Network::parse_single(text.as_bytes()).map_err(Error::Invalid)?;
            let chain = Chain {
                runner: &self.0.runner,
                version: network.highest(),
                network: &network,
                id: &attachment.id,
                netns: &attachment.netns,
                ifname: "lo",
                args: &attachment.args,
                capabilities: &Map::new(),
            };
            return chain.add(&mut None).await.map(drop);
        }
        let netns = attachment.netns.clone();
        self.blocking(move |_| loopback::bring_up(&netns).map_err(|source| Error::Loopback { netns, source })).await
    }

    /// Records that a network is begun, adds it and records the result. The last plugin's result is there also
    /// after a failure.
    async fn add(
        &self,
        member: &Member,
        attachment: &Attachment,
        capabilities: &Map<String, Value>,
    ) -> (Option<Value>, Result<NetworkResult>) {
        let (network, text) = member.network.pinned(member.version);
        let mut record = Record::begun(&network.name, &attachment.id, &member.ifname, text);
        record.netns.clone_from(&attachment.netns);
        record.cni_args.clone_from(&attachment.args);
        record.capability_args.clone_from(capabilities);
        if let Err(error) = self.put(record.clone()).await {
            return (None, Err(error));
        }
        let chain = Chain {
            runner: &self.0.runner,
            network: &network,
            version: member.version,
            id: &attachment.id,
            netns: &attachment.netns,
            ifname: &member.ifname,
            args: &attachment.args,
            capabilities,
        };
        let mut last = None;
        let mut outcome = chain.add(&mut last).await;
        if outcome.is_ok() {
            record.result.clone_from(&last);
            outcome = self.put(record).await.and(outcome);
        }
        (last, outcome)
    }

    async fn put(&self, record: Record) -> Result<()> {
        self.blocking(move |inner| inner.cache.put(&record)).await
    }

    /// Takes off the networks that were begun, each with the last result that it gave.
    async fn roll_back(
        &self,
        attachment: &Attachment,
        capabilities: &Map<String, Value>,
        members: Vec<Member>,
        last: Vec<Option<Value>>,
    ) {
        let undo = members.into_iter().zip(last).map(|(member, result)| {
            let mut record = Record::begun(&member.network.name, &attachment.id, &member.ifname, Vec::new());
            record.result = result;
            let job = Job {
                member,
                record: Some(record),
                netns: netns_or_nothing(&attachment.netns),
                args: attachment.args.clone(),
                capabilities: capabilities.clone(),
            };
            self.delete(&attachment.id, job)
        });
        for error in join_all(undo).await.into_iter().filter_map(Result::err) {
            tracing::warn!(id = attachment.id, %error, "a failed attachment is not wholly undone");
        }
    }

    /// Takes one network off and, if that went well, its record away.
    async fn delete(&self, id: &str, job: Job) -> Result<()> {
        let result = job.record.as_ref().and_then(|record| record.result.as_ref());
        job.chain(&self.0.runner, id).delete(result).await?;
        let (network, id, ifname) = (job.member.network.name, id.to_owned(), job.member.ifname);
        self.blocking(move |inner| inner.cache.remove(&network, &id, &ifname)).await
    }

    /// What is recorded of a sandbox or, if nothing is, the networks as they are now.
    async fn jobs(&self, attachment: &Attachment) -> Result<Vec<Job>> {
        let id = attachment.id.clone();
        let records = self.blocking(move |inner| inner.cache.list(Some(&id))).await?;
        let records: Vec<_> = records.into_iter().filter(|record| record.network_name != LOOPBACK.0).collect();
        let networks = match self.networks().await {
            Ok(networks) => networks,
            Err(error) => {
                tracing::debug!(id = attachment.id, %error, "only what is recorded of the sandbox is taken off");
                Arc::default()
            }
        };
        let mut jobs = Vec::new();
        for record in &records {
            let configured = networks.iter().find(|network| network.name == record.network_name);
            match Network::parse_pinned(&record.config).ok().or_else(|| configured.cloned()) {
                Some(network) => jobs.push(self.job(attachment, record.clone(), &network)),
                None => tracing::warn!(
                    id = attachment.id,
                    network = record.network_name,
                    "the recorded configuration cannot be read, and the network is configured no more"
                ),
            }
        }
        if !records.is_empty() {
            return Ok(jobs);
        }
        for (index, network) in networks.iter().enumerate() {
            let version = self.0.versions.choose(&self.0.runner, network).await.unwrap_or(network.highest());
            jobs.push(Job {
                member: Member { network: network.clone(), version, ifname: self.ifname(index) },
                record: None,
                netns: netns_or_nothing(&attachment.netns),
                args: attachment.args.clone(),
                capabilities: attachment.capabilities.by_name(),
            });
        }
        Ok(jobs)
    }

    /// How to take off what a record says; what it does not know, the attachment may.
    fn job(&self, attachment: &Attachment, record: Record, fallback: &Network) -> Job {
        let network = Network::parse_pinned(&record.config).unwrap_or_else(|_| fallback.clone());
        let given = netns_or_nothing(&attachment.netns);
        Job {
            netns: if given.as_os_str().is_empty() { netns_or_nothing(&record.netns) } else { given },
            args: if record.cni_args.is_empty() { attachment.args.clone() } else { record.cni_args.clone() },
            capabilities: record.capability_args.clone(),
            member: Member { version: network.highest(), network, ifname: record.if_name.clone() },
            record: Some(record),
        }
    }

    async fn gc_plugins(
        &self,
        network: &Network,
        valid: &BTreeSet<&str>,
        ifname: &str,
        records: impl Iterator<Item = &Record>,
    ) -> Result<()> {
        let version = self.0.versions.choose(&self.0.runner, network).await?;
        if version < SpecVersion::GC_AND_STATUS {
            return Ok(());
        }
        // An attachment may have had another interface than one of now would have.
        let recorded = records.map(|record| (record.container_id.as_str(), record.if_name.as_str()));
        let mut pairs: BTreeSet<_> = recorded.filter(|(id, _)| valid.contains(id)).collect();
        pairs.extend(valid.iter().map(|id| (*id, ifname)));
        let list: Vec<_> = pairs.iter().map(|(id, ifname)| json!({"containerID": id, "ifname": ifname})).collect();
        let mut more = Map::new();
        // The specification has had both names.
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            more.insert(key.into(), json!(list));
        }
        run_for_network(&self.0.runner, network, version, "GC", &more).await
    }

    /// Disk work, away from the threads that must not wait.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(|error| Error::Invalid(format!("work on the disk did not end: {error}")))?
    }
}

impl Job {
    fn chain<'a>(&'a self, runner: &'a Runner, id: &'a str) -> Chain<'a> {
        Chain {
            runner,
            network: &self.member.network,
            version: self.member.version,
            id,
            netns: &self.netns,
            ifname: &self.member.ifname,
            args: &self.args,
            capabilities: &self.capabilities,
        }
    }
}

/// The path if a network namespace is there, otherwise nothing: plugins know what a DEL without one means, but
/// many fail at a path that leads nowhere, or to what is left of a mount point.
fn netns_or_nothing(path: &Path) -> PathBuf {
    match rustix::fs::statfs(path) {
        Ok(found) if i128::from(found.f_type) == NSFS => path.to_owned(),
        _ => PathBuf::new(),
    }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod real_plugins;
#[cfg(test)]
mod tests;
