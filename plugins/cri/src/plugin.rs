//! The registrations: `io.containerd.cri.v1.runtime` holds the settings, `io.containerd.grpc.v1.cri` is the service.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use containerd_api_cri::v1::runtime_service_server::RuntimeServiceServer;
use core_cni::{Cni, IpPreference};
use core_events::Exchange;
use core_plugin::{InitContext, InitResult, Instance, Registration, Requirement, Transport, types};
use core_runtime_v2::TaskManager;
use core_sandbox::{Controller, Controllers};
use core_types::{Error, Namespace, Platform, Result, ResultExt, Scope};
use plugin_cri_images::Images;
use plugin_cri_spec::{Host, Options};
use plugin_cri_streaming::Server;
use plugin_nri::{Factory, Nri};
use plugin_services::{GrpcService, MAX_MESSAGE_SIZE};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{CniConfig, RuntimeConfig, ServerConfig},
    cri::{Cri, NAMESPACE, Networks},
    handler::Handlers,
    layout::Layout,
    nri::Callbacks,
    oom, recovery,
    sandbox::pause::PauseController,
    service::Service,
    stats,
    stream::{StreamUrls, Streamer},
};

/// The controller that holds pods by a pause container.
const PAUSE: &str = "podsandbox";
/// Where the controllers of sandboxes are found by name.
const CONTROLLERS: (&str, &str) = (types::INTERNAL, "sandbox-controllers");
/// How long a CNI plugin may take.
const CNI_TIMEOUT: Duration = Duration::from_secs(120);

/// The plugins of this crate.
pub fn plugins() -> Vec<Registration> {
    vec![
        Registration::new(types::CRI_SERVICE, "runtime", |context| async move {
            Ok(Instance::new(Arc::new(context.config::<RuntimeConfig>()?)))
        })
        .config(&RuntimeConfig::default()),
        Registration::new(types::GRPC, "cri", init)
            .config(&ServerConfig::default())
            .requires((types::CRI_SERVICE, "runtime"))
            .requires((types::CRI_SERVICE, "images"))
            .requires((types::RUNTIME_V2, "task"))
            .requires((types::EVENT, "exchange"))
            .requires((types::NRI, "nri"))
            .requires(CONTROLLERS)
            .requires(Requirement::optional(types::SANDBOX_CONTROLLER))
            .requires(types::METADATA),
    ]
}

async fn init(context: InitContext) -> InitResult<Instance> {
    let server: ServerConfig = context.config()?;
    if !server.disable_tcp_service {
        tracing::warn!("disable_tcp_service = false: the CRI is served on the Unix socket alone");
    }
    let config: Arc<RuntimeConfig> = context.get(types::CRI_SERVICE, "runtime")?;
    let pause = Arc::new(PauseController::default());
    let controllers: Controllers = context.get(CONTROLLERS.0, CONTROLLERS.1)?;
    controllers.add(PAUSE, Arc::clone(&pause) as Arc<dyn Controller>)?;
    let layout = Layout::new(context.create_root()?.to_owned(), context.create_state()?.to_owned());
    let callbacks = Arc::new(Callbacks::default());
    let nri = context.single::<Factory>(types::NRI)?.start(callbacks.clone()).await.doing("start NRI")?;
    let stopped = nri.clone();
    let cri = Arc::new(assemble(&context, (*config).clone(), layout, nri, controllers)?);
    callbacks.bind(&cri);
    pause.bind(&cri);
    oom::listen(&cri)?;
    recovery::recover(&cri).await.doing("find pods and containers of an earlier daemon")?;
    stats::start(&cri);
    let streamer = Arc::new(Streamer::default());
    streamer.bind(&cri);
    let streams = Arc::new(Server::bind(streaming(&server)?, streamer).await.doing("start the streaming server")?);
    let service = RuntimeServiceServer::new(Service::new(Arc::clone(&cri), StreamUrls(Arc::clone(&streams))))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let asked = Arc::clone(&cri);
    let instance = Instance::new(cri).offer(Transport::Grpc, GrpcService::new(service)).platform(Platform::host());
    let stop = CancellationToken::new();
    let ends = stop.clone();
    let instance = instance.when_serving(move || async move {
        tokio::spawn(async move { asked.features.ask(&asked).await });
        tokio::spawn(async move { streams.run(ends.cancelled()).await });
    });
    Ok(instance.on_close(move || async move {
        stop.cancel();
        stopped.stop().await;
    }))
}

/// The settings of the streaming server.
fn streaming(config: &ServerConfig) -> Result<plugin_cri_streaming::Config> {
    let wrong = |what: &str| Error::invalid_argument(format!("{what} is no address that can be listened on"));
    let address = match config.stream_server_address.as_str() {
        "" => "0.0.0.0",
        text => text,
    };
    let ip = address.parse().map_err(|_| wrong("stream_server_address"))?;
    let port = config.stream_server_port.parse().map_err(|_| wrong("stream_server_port"))?;
    let pair = &config.x509_key_pair_streaming;
    let tls = config.enable_tls_streaming.then(|| plugin_cri_streaming::Tls {
        certificate: pair.tls_cert_file.clone().into(),
        key: pair.tls_key_file.clone().into(),
    });
    Ok(plugin_cri_streaming::Config {
        address: SocketAddr::new(ip, port),
        advertised: None,
        idle_timeout: config.stream_idle_timeout,
        tls,
    })
}

fn assemble(
    context: &InitContext,
    config: RuntimeConfig,
    layout: Layout,
    nri: Nri,
    controllers: Controllers,
) -> Result<Cri> {
    let namespace = Namespace::new(NAMESPACE)?;
    let images: Images = context.get(types::CRI_SERVICE, "images")?;
    let handlers = Handlers::new(&config.containerd)?;
    let snapshotters = handlers.all().filter(|handler| !handler.config.snapshotter.is_empty());
    images.set_runtime_snapshotters(
        snapshotters.map(|handler| (handler.name.clone(), handler.config.snapshotter.clone())).collect(),
    );
    Ok(Cri {
        host: Host::detect(config.enable_selinux, !config.disable_apparmor)?,
        spec_options: spec_options(&config),
        networks: networks(&config.cni, &handlers)?,
        scope: Scope::new(namespace.clone()),
        database: context.single(types::METADATA)?,
        tasks: context.get::<Arc<TaskManager>>(types::RUNTIME_V2, "task")?,
        exchange: context.get::<Arc<Exchange>>(types::EVENT, "exchange")?,
        features: Default::default(),
        sandboxes: Default::default(),
        containers: Default::default(),
        names: Default::default(),
        feed: Default::default(),
        sampler: Default::default(),
        starting: Default::default(),
        creating: Default::default(),
        stopping: Default::default(),
        removing: Default::default(),
        config,
        layout,
        handlers,
        namespace,
        images,
        nri,
        controllers,
    })
}

fn spec_options(config: &RuntimeConfig) -> Options {
    Options {
        disable_proc_mount: config.disable_proc_mount,
        unset_seccomp_profile: config.unset_seccomp_profile.clone(),
        tolerate_missing_hugetlb_controller: config.tolerate_missing_hugetlb_controller,
        disable_hugetlb_controller: config.disable_hugetlb_controller,
        device_ownership_from_security_context: config.device_ownership_from_security_context,
        ignore_image_defined_volumes: config.ignore_image_defined_volumes,
        enable_unprivileged_ports: config.enable_unprivileged_ports,
        enable_unprivileged_icmp: config.enable_unprivileged_icmp,
        restrict_oom_score_adj: config.restrict_oom_score_adj,
        enable_cdi: config.enable_cdi,
        cdi_spec_dirs: config.cdi_spec_dirs.iter().map(PathBuf::from).collect(),
        ignore_blockio_not_enabled_errors: config.containerd.ignore_blockio_not_enabled_errors,
        ignore_rdt_not_enabled_errors: config.containerd.ignore_rdt_not_enabled_errors,
    }
}

fn networks(config: &CniConfig, handlers: &Handlers) -> Result<Networks> {
    let common = cni(config, &config.conf_dir, config.max_conf_num)?;
    let mut by_handler = BTreeMap::new();
    for handler in handlers.all().filter(|handler| !handler.config.cni_conf_dir.is_empty()) {
        let number = handler.config.cni_max_conf_num;
        by_handler.insert(handler.name.clone(), cni(config, &handler.config.cni_conf_dir, number)?);
    }
    Ok(Networks { common, by_handler })
}

fn cni(config: &CniConfig, directory: &str, max_conf_num: usize) -> Result<Arc<Cni>> {
    let bin_dirs = match (config.bin_dir.as_str(), &config.bin_dirs) {
        ("", dirs) => dirs.iter().map(PathBuf::from).collect(),
        (old, _) => vec![PathBuf::from(old)],
    };
    let ip_preference = match config.ip_pref.as_str() {
        "ipv6" => IpPreference::Ipv6,
        "cni" => IpPreference::AsGiven,
        _ => IpPreference::Ipv4,
    };
    let config = core_cni::Config {
        conf_dir: directory.into(),
        bin_dirs,
        max_conf_num,
        setup_serially: config.setup_serially,
        ip_preference,
        timeout: CNI_TIMEOUT,
        use_internal_loopback: config.use_internal_loopback,
        ..core_cni::Config::default()
    };
    Cni::new(config).map(Arc::new).map_err(Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_published_names() {
        let uris: Vec<String> = plugins().iter().map(Registration::uri).collect();
        assert_eq!(uris, ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]);
    }

    #[test]
    fn the_defaults_come_back_from_their_text() {
        let text = toml::to_string(&RuntimeConfig::default()).unwrap();
        let config: RuntimeConfig = toml::from_str(&text).unwrap();
        assert_eq!(config.cni.conf_dir, "/etc/cni/net.d");
        assert!(text.contains("drain_exec_sync_io_timeout = \"0s\""), "{text}");
        let text = toml::to_string(&ServerConfig::default()).unwrap();
        assert!(text.contains("stream_idle_timeout = \"4h0m0s\""), "{text}");
    }
}
