// Package feed is a client of channeld's feed, without other packages. README.md in the folder above has examples.
package feed

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	Oldest                 int64 = -1 // as a position: begin with the oldest event
	firstWait, longestWait       = 100 * time.Millisecond, 10 * time.Second
	patience                     = 15 * time.Second // without any data, after which a connection counts as broken
	accessGrace                  = time.Minute      // in which a refused access is retried if it worked before
)

type Channel struct {
	Name, ID string
	Position int64 // of the newest event
}

type Event struct {
	Position int64           // 1, 2, 3 and so on, in order of delivery
	Record   json.RawMessage // the event as it was received, with its position: `channeld schema record` describes it
}

// Error means that the feed refused a request. Kind is the last part of the type of the problem. If it is "gone", the events after
// the position were deleted, and Oldest is the position of the oldest event. Status is 0 if there is no answer, because the token
// cannot be read (Kind is "token") or TLS does not work, such as for an untrusted certificate ("tls").
type Error struct {
	Status     int
	Kind       string `json:"type"`
	Detail     string
	Oldest     int64
	retryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Detail
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Kind, e.Detail)
}

// Feed is a feed. The exported fields can be changed before the first request.
type Feed struct {
	Token   func() (string, error)     // called for each request, so that a token can be replaced
	Limit   int                        // the largest number of events of one answer
	Wait    time.Duration              // how long one request waits for an event
	OnRetry func(error, time.Duration) // called before a request is repeated: by default, this is logged
	base    string
	client  http.Client
}

// New returns the feed at "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH". authorities contains CA certificates in PEM. If it
// is empty, the CA certificates of the system are used.
func New(address string, authorities []byte, token func() (string, error)) (*Feed, error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{}}
	base := strings.TrimSuffix(address, "/")
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix && strings.HasPrefix(path, "/") {
		base = "http://localhost"
		dialer := net.Dialer{}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	}
	if parsed, err := url.Parse(base); err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return nil, fmt.Errorf(`the address must be "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH", not %q`, address)
	}
	if len(authorities) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("the PEM text contains no CA certificate")
		}
	}
	onRetry := func(err error, wait time.Duration) { slog.Warn("channeld feed: retrying", "error", err, "wait", wait) }
	client := http.Client{Transport: transport}
	return &Feed{Token: token, Limit: 100, Wait: 30 * time.Second, OnRetry: onRetry, base: base, client: client}, nil
}

// TokenFile returns a function that reads the token from a file for each request.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) { token, err := os.ReadFile(path); return string(token), err }
}

// Channels returns the channels that the token may read. It makes one attempt.
func (f *Feed) Channels(ctx context.Context) ([]Channel, error) {
	found, err := f.requests(ctx).send("GET", "/v1/channels", nil)
	return found.Channels, err
}

// Events returns all events after a position, in order, without an end. An error is the last value.
func (f *Feed) Events(ctx context.Context, channel string, after int64) iter.Seq2[Event, error] {
	return f.read(ctx, after, func(r *requests, after int64, receive func(Event) error) error {
		path := fmt.Sprintf("/v1/channels/%s/events?%s", url.PathEscape(channel), f.query())
		if after != Oldest {
			path += fmt.Sprintf("&after=%d", after)
		}
		page, err := r.send("GET", path, nil)
		for _, event := range page.Events {
			if err == nil {
				err = receive(event)
			}
		}
		return err
	})
}

// Stream is like Events, with server-sent events.
func (f *Feed) Stream(ctx context.Context, channel string, after int64) iter.Seq2[Event, error] {
	path := "/v1/channels/" + url.PathEscape(channel) + "/stream"
	return f.read(ctx, after, func(r *requests, after int64, receive func(Event) error) error { return r.stream(path, after, receive) })
}

// read repeats requests that receive the events after a position.
func (f *Feed) read(ctx context.Context, after int64, once func(*requests, int64, func(Event) error) error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r, isStopped := f.requests(ctx), false
		receive := func(event Event) error {
			err := checkOrder(event, &after)
			if isStopped = err == nil && !yield(event, nil); isStopped {
				err = io.EOF
			}
			return err
		}
		for {
			err := r.repeat(func() error {
				if err := once(r, after, receive); !isStopped {
					return err
				}
				return nil
			})
			if err != nil {
				yield(Event{}, err)
			}
			if isStopped || err != nil {
				return
			}
		}
	}
}

// Consume calls process with the next 1 to Limit events, and commits them when it has returned nil. Consume ends only with an error.
//
// If process returns an error, nothing is committed, and Consume returns the error. If process takes longer than the lease, the
// events come again. While another process has the lease, Consume waits.
func (f *Feed) Consume(ctx context.Context, consumer, channel string, process func([]Event) error) error {
	path := fmt.Sprintf("/v1/consumers/%s/%s/", url.PathEscape(consumer), url.PathEscape(channel))
	for r := f.requests(ctx); ; {
		var leased answer
		err := r.repeat(func() (err error) { leased, err = r.send("POST", path+"lease?"+f.query(), nil); return err })
		last := Oldest
		for _, event := range leased.Events {
			err = errors.Join(err, checkOrder(event, &last))
		}
		if err == nil && last == Oldest {
			continue // no event came during the wait
		}
		if err == nil {
			err = process(leased.Events)
		}
		if err != nil {
			return err
		}
		body, _ := json.Marshal(map[string]any{"lease": leased.Lease, "through": last})
		err = r.repeat(func() error { _, err := r.send("POST", path+"commit", body); return err })
		if refused := (*Error)(nil); errors.As(err, &refused) && refused.Kind == "not-leased" {
			// The lease has expired, or the answer to an earlier attempt was lost. The next lease begins at the cursor.
			f.OnRetry(err, 0)
		} else if err != nil {
			return err
		}
	}
}

func (f *Feed) query() string {
	return fmt.Sprintf("limit=%d&wait=%dms", f.Limit, f.Wait.Milliseconds())
}

// checkOrder checks that no event is missing: each position is one more than the position before it.
func checkOrder(event Event, after *int64) error {
	if *after != Oldest && event.Position != *after+1 {
		detail := fmt.Sprintf("the feed sent position %d after position %d", event.Position, *after)
		return &Error{Status: http.StatusOK, Kind: "missing-events", Detail: detail}
	}
	*after = event.Position
	return nil
}

// Verdict is the result of the verification of one event. Status is verified, unsigned, pending or rejected.
type Verdict struct {
	EventID        string `json:"event_id"`
	Status, Reason string
	Signers        []string
}

// Verify runs `channeld verify` with these arguments, such as "--config", "verify.toml". It returns the verdict of each event, and an
// exec.ExitError if an event is not verified. With "--allow-unsigned", notices are accepted, which are never signed.
func Verify(ctx context.Context, events []Event, program string, arguments ...string) (verdicts []Verdict, err error) {
	records := make([][]byte, len(events))
	for i, event := range events {
		records[i] = event.Record
	}
	command := exec.CommandContext(ctx, program, append([]string{"verify", "--json"}, arguments...)...)
	command.Stdin = strings.NewReader("[" + string(bytes.Join(records, []byte(","))) + "]")
	output, err := command.Output()
	for lines := json.NewDecoder(bytes.NewReader(output)); lines.More(); {
		verdicts = append(verdicts, Verdict{})
		if broken := lines.Decode(&verdicts[len(verdicts)-1]); broken != nil { // the program was ended in the middle of a line
			return verdicts[:len(verdicts)-1], errors.Join(err, broken)
		}
	}
	if err == nil && len(verdicts) != len(events) {
		err = fmt.Errorf("%s verify printed %d verdicts for %d events", program, len(verdicts), len(events))
	}
	return verdicts, err
}
