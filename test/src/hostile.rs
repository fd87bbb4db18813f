use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Media type of an OCI manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an OCI image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of an uncompressed OCI layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// How an answer goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status with this header and an error body, instead of the content.
    Status(u16, &'static str),
    /// The connection closes after so many bytes of the body.
    Cut(usize),
    /// Another body of the same length, and the same digest claimed.
    Other(Vec<u8>),
    /// After so many bytes of the body nothing more comes for so long, then the connection closes.
    Stall(usize, Duration),
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET` or `HEAD`.
    pub method: String,
    /// The path.
    pub path: String,
    /// The first byte asked for.
    pub from: usize,
}

#[derive(Clone)]
struct Content {
    media_type: String,
    digest: String,
    bytes: Arc<Vec<u8>>,
}

#[derive(Default)]
struct Shelf {
    /// By path below `/v2/`.
    contents: BTreeMap<String, Content>,
    faults: VecDeque<(String, Fault, usize)>,
    asked: Vec<Asked>,
    /// What requests have to have as `Authorization`.
    demanded: Option<String>,
}

/// A registry in this process that answers as a test wants it.
pub struct Hostile {
    port: u16,
    shelf: Arc<Mutex<Shelf>>,
    ends: Arc<AtomicBool>,
}

/// A blob and how a manifest names it.
#[derive(Clone, Debug)]
pub struct Blob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptor.
    pub descriptor: Value,
}

/// The digest of bytes.
pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl Blob {
    /// A blob with a true descriptor.
    pub fn new(media_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let descriptor = json!({ "mediaType": media_type, "digest": digest(&bytes), "size": bytes.len() });
        Self { bytes, descriptor }
    }
}

/// One file of a layer that [`tar`] makes.
#[derive(Clone, Copy, Debug)]
pub enum File<'a> {
    /// A regular file with its text.
    Regular(&'a str, &'a str),
    /// A symbolic link and where it leads.
    Symlink(&'a str, &'a str),
    /// A hard link and its other name.
    HardLink(&'a str, &'a str),
}

/// An archive whose names are as they are given, however bad.
pub fn tar(files: &[File<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    for file in files {
        let (name, kind, link, data) = match *file {
            File::Regular(name, text) => (name, b'0', "", text),
            File::HardLink(name, link) => (name, b'1', link, ""),
            File::Symlink(name, link) => (name, b'2', link, ""),
        };
        let mut header = [0; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", data.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(data.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

impl Hostile {
    /// Starts an empty registry, which behaves until it is told not to.
    ///
    /// # Panics
    /// When there is no port.
    #[allow(clippy::new_without_default)]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let ends = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(&shelf), Arc::clone(&ends));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let shelf = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &shelf));
            }
        });
        Self { port, shelf, ends }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, path: String, media_type: &str, digest: &str, bytes: &[u8]) {
        let content = Content { media_type: media_type.into(), digest: digest.into(), bytes: Arc::new(bytes.to_vec()) };
        self.shelf().contents.insert(path, content);
    }

    /// The full name of an image here.
    pub fn name(&self, image: &str) -> String {
        format!("127.0.0.1:{}/{image}:1", self.port)
    }

    /// Offers a manifest as it is, under a tag and its digest; answers the image's name.
    pub fn manifest(&self, image: &str, media_type: &str, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.put(format!("{image}/manifests/1"), media_type, &digest, bytes);
        self.put(format!("{image}/manifests/{digest}"), media_type, &digest, bytes);
        self.name(image)
    }

    /// Offers a blob under the digest in its descriptor.
    pub fn blob(&self, image: &str, blob: &Blob) {
        let digest = blob.descriptor["digest"].as_str().unwrap_or_default().to_owned();
        self.put(format!("{image}/blobs/{digest}"), "application/octet-stream", &digest, &blob.bytes);
    }

    /// Offers an image of these layers, whose diff ids are as given; answers its name.
    pub fn image(&self, image: &str, layers: &[(Blob, String)]) -> String {
        let diff_ids: Vec<&str> = layers.iter().map(|(_, diff_id)| diff_id.as_str()).collect();
        let config = json!({
            "architecture": crate::image::architecture(),
            "os": "linux",
            "config": { "Cmd": ["/bin/true"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = Blob::new(CONFIG, config.to_string());
        self.blob(image, &config);
        let mut descriptors = Vec::new();
        for (layer, _) in layers {
            self.blob(image, layer);
            descriptors.push(layer.descriptor.clone());
        }
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor, "layers": descriptors });
        self.manifest(image, MANIFEST, manifest.to_string().as_bytes())
    }

    /// The next `times` answers to a `GET` whose path contains `part` go wrong.
    pub fn fault(&self, part: &str, fault: Fault, times: usize) {
        self.shelf().faults.push_back((part.to_owned(), fault, times));
    }

    /// Answers only requests with this `Authorization`, `Basic …`.
    pub fn demand(&self, authorization: &str) {
        self.shelf().demanded = Some(authorization.to_owned());
    }

    /// Behaves again.
    pub fn heal(&self) {
        self.shelf().faults.clear();
    }

    /// What was asked for, and forgets it.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shelf().asked)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Reads one request, and answers it.
fn answer(stream: TcpStream, shelf: &Mutex<Shelf>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?).take(64 * 1024);
    let mut first = String::new();
    let read = reader.read_line(&mut first);
    if read.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData) {
        // TLS, which web servers without it answer so; clients then try it plainly.
        let mut stream = stream;
        return stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request.\n").ok();
    }
    let mut from = 0;
    let mut authorization = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.trim().split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            value.trim().clone_into(&mut authorization);
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.split('-').next()?.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (content, fault) = {
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = if shelf.demanded.as_ref().is_some_and(|demanded| *demanded != authorization) {
            Some(Fault::Status(401, "WWW-Authenticate: Basic realm=\"test\""))
        } else {
            take_fault(&mut shelf.faults, &path, &method)
        };
        let bare = path.split('?').next().unwrap_or_default();
        let content = shelf.contents.get(bare.strip_prefix("/v2/").unwrap_or_default()).cloned();
        shelf.asked.push(Asked { method: method.clone(), path, from });
        (content, fault)
    };
    reply(stream, method == "HEAD", from, content, fault)
}

fn take_fault(faults: &mut VecDeque<(String, Fault, usize)>, path: &str, method: &str) -> Option<Fault> {
    let at = faults.iter().position(|(part, fault, _)| {
        // A `HEAD` has no body to damage.
        path.contains(part.as_str()) && (method == "GET" || matches!(fault, Fault::Status(..)))
    })?;
    let (_, fault, left) = &mut faults[at];
    let fault = fault.clone();
    *left -= 1;
    if *left == 0 {
        faults.remove(at);
    }
    Some(fault)
}

fn reply(mut stream: TcpStream, head: bool, from: usize, content: Option<Content>, fault: Option<Fault>) -> Option<()> {
    let (status, header) = match (&fault, &content) {
        (Some(Fault::Status(status, header)), _) => (*status, *header),
        (_, None) => (404, ""),
        _ => (200, ""),
    };
    let Some(content) = content.filter(|_| status == 200) else {
        let body = r#"{"errors":[{"code":"TEST","message":"as the test wants it"}]}"#;
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let answer = format!(
            "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{header}Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(answer.as_bytes()).ok()?;
        return if head { Some(()) } else { stream.write_all(body.as_bytes()).ok() };
    };
    let bytes = match &fault {
        Some(Fault::Other(bytes)) => bytes,
        _ => content.bytes.as_ref(),
    };
    let from = from.min(bytes.len());
    let (status, range) = if from > 0 {
        (206, format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len()))
    } else {
        (200, String::new())
    };
    let answer = format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: {}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\n{range}Connection: close\r\n\r\n",
        content.media_type,
        content.digest,
        bytes.len() - from
    );
    stream.write_all(answer.as_bytes()).ok()?;
    if head {
        return Some(());
    }
    let end = match &fault {
        Some(Fault::Cut(after) | Fault::Stall(after, _)) => (from + *after).min(bytes.len()),
        _ => bytes.len(),
    };
    stream.write_all(&bytes[from..end]).ok()?;
    if let Some(Fault::Stall(_, time)) = fault {
        std::thread::sleep(time);
    }
    Some(())
}
