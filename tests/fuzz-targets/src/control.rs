//! Target `control`: any bytes at the control socket.

use serde_json::Value;
use sluice_unixctl::{REQUEST_TIME_MAX, Requests, reply};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// What a socket takes without a reader.
const BYTES_MAX: usize = 64 << 10;

/// The bytes are a client's, that then leaves. Each request takes at least one of them, and what is answered is a line of
/// JSON which says for which request it is.
pub fn control(data: &[u8]) {
    let data = &data[..data.len().min(BYTES_MAX)];
    let (server, mut client) = UnixStream::pair().expect("a pair of sockets");
    client.write_all(data).expect("the socket takes what fits its buffer");
    client.shutdown(Shutdown::Write).expect("a socket that is open");
    let mut answered = 0;
    for request in Requests::new(server, REQUEST_TIME_MAX) {
        let Ok(request) = request else { break };
        answered += 1;
        assert!(answered <= data.len(), "{answered} requests in {} bytes", data.len());
        let arguments: Vec<&str> = request.params.iter().filter_map(Value::as_str).collect();
        for answer in [Ok(arguments.join("\n")), Err(request.method.clone())] {
            let line = reply(&request.id, &answer);
            assert!(!line.contains('\n'), "a reply is one line: {line}");
            let read: Value = serde_json::from_str(&line).expect("a reply is JSON");
            assert_eq!(read["id"], request.id);
            assert_eq!((read["result"].is_null(), read["error"].is_null()), (answer.is_err(), answer.is_ok()));
        }
    }
}
