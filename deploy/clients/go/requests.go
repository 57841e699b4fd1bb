package feed

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// requests are requests of one reader. They are repeated, with a longer wait after each failure.
type requests struct {
	*Feed
	ctx         context.Context
	wait        time.Duration // before the next repetition
	hasWorked   bool
	hasWaited   bool      // for a lease
	deniedAfter time.Time // zero: the last access was not refused
}

func (f *Feed) requests(ctx context.Context) *requests {
	return &requests{Feed: f, ctx: ctx, wait: firstWait}
}

// repeat makes attempts until one is a success, or fails with an error that will not pass.
func (r *requests) repeat(attempt func() error) error {
	for {
		err := attempt()
		if err == nil || r.ctx.Err() != nil {
			r.wait = firstWait
			return errors.Join(err, r.ctx.Err())
		}
		refused := &Error{Status: http.StatusServiceUnavailable} // an error without an answer may pass
		errors.As(err, &refused)
		isLeased := refused.Kind == "leased"
		if !isLeased && !r.isPassing(refused.Status) {
			return err
		}
		wait := max(r.wait/2+rand.N(r.wait/2), refused.retryAfter)
		r.wait = min(2*r.wait, longestWait)
		if !isLeased || !r.hasWaited { // the wait for a lease is not a failure, and is reported once
			r.OnRetry(err, wait)
		}
		if isLeased {
			r.hasWaited, r.wait = true, firstWait
			r.allowed()
		}
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

// isPassing returns whether a request may be repeated after this refusal.
func (r *requests) isPassing(status int) bool {
	if status == 408 || status == 429 || status >= 500 {
		return true
	}
	if r.deniedAfter.IsZero() {
		r.deniedAfter = time.Now().Add(accessGrace)
	}
	isDenied := status == 0 || status == 401 || status == 403 || status == 404
	return isDenied && r.hasWorked && time.Now().Before(r.deniedAfter)
}

func (r *requests) allowed() { r.hasWorked, r.deniedAfter = true, time.Time{} }

type answer struct {
	Channels []Channel
	Events   []Event
	Lease    string
}

func (e *Event) UnmarshalJSON(text []byte) error {
	e.Record = bytes.Clone(text)
	return json.Unmarshal(text, &struct{ Position *int64 }{&e.Position})
}

func (r *requests) send(method, path string, body []byte) (found answer, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.Wait+4*patience)
	defer cancel()
	response, err := r.open(ctx, method, path, Oldest, body)
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(&found)
	}
	return found, err
}

// stream receives events until the stream breaks or receive fails. A message that did not arrive completely is ignored.
func (r *requests) stream(path string, after int64, receive func(Event) error) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	response, err := r.open(ctx, "GET", path, after, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fields := map[string]string{}
	for lines := bufio.NewReader(response.Body); ; silence.Reset(patience) {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			name, value, _ := strings.Cut(line, ":")
			fields[name] += value + "\n"
			continue
		}
		if data := []byte(fields["data"]); len(data) > 0 {
			if strings.TrimSpace(fields["event"]) == "problem" {
				return refusal(response, data)
			}
			var event Event
			if err := json.Unmarshal(data, &event); err != nil {
				return err
			}
			silence.Stop() // while the caller processes the event
			if err := receive(event); err != nil {
				return err
			}
			r.wait = firstWait
		}
		clear(fields)
	}
}

// open returns the answer if it is a success. A connection is used for one request.
func (r *requests) open(ctx context.Context, method, path string, after int64, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if after != Oldest {
		request.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	if r.Token != nil {
		token, err := r.Token()
		if err != nil {
			return nil, &Error{Kind: "token", Detail: "the token cannot be read: " + err.Error()}
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	response, err := r.client.Do(request)
	if err != nil && isOfTLS(err) {
		return nil, &Error{Kind: "tls", Detail: err.Error()}
	} else if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNoContent {
		r.allowed()
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return nil, refusal(response, text)
}

// isOfTLS returns whether the certificate is not trusted, or the feed does not use TLS. A broken connection is another error.
func isOfTLS(err error) bool {
	certificate, record := (*tls.CertificateVerificationError)(nil), tls.RecordHeaderError{}
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}

// refusal returns the error of an answer. A proxy in front of the feed may send another text than a problem.
func refusal(response *http.Response, text []byte) error {
	refused := &Error{Status: response.StatusCode}
	if json.Unmarshal(text, refused) != nil {
		refused.Detail = fmt.Sprintf("%.200q", text)
	}
	refused.Kind = refused.Kind[strings.LastIndex(refused.Kind, ":")+1:]
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	refused.retryAfter = min(time.Duration(seconds)*time.Second, longestWait)
	return refused
}
