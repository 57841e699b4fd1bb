package feed

import (
	"bufio"
	"bytes"
	"context"
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
	deniedAfter time.Time // zero: the last request was a success
}

func (f *Feed) requests(ctx context.Context) *requests {
	return &requests{Feed: f, ctx: ctx, wait: firstWait}
}

// repeat makes attempts until one is a success, or fails with an error that will not pass.
func (r *requests) repeat(attempt func() error) error {
	for {
		err := attempt()
		if err == nil || r.ctx.Err() != nil {
			return errors.Join(err, r.ctx.Err())
		}
		if r.deniedAfter.IsZero() {
			r.deniedAfter = time.Now().Add(accessGrace)
		}
		wait := r.wait/2 + rand.N(r.wait/2)
		r.wait = min(2*r.wait, longestWait)
		if refused := (*Error)(nil); errors.As(err, &refused) {
			isDenied := refused.Status == 401 || refused.Status == 403 || refused.Status == 404
			isPassing := refused.Status == 408 || refused.Status == 429 || refused.Status >= 500 || refused.Kind == "leased"
			if !isPassing && !(isDenied && r.hasWorked && time.Now().Before(r.deniedAfter)) {
				return err
			}
			wait = max(wait, refused.retryAfter)
			if refused.Kind == "leased" {
				r.wait = firstWait
			}
		}
		r.OnRetry(err, wait)
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

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
	kind, data := "", ""
	for lines := bufio.NewReader(response.Body); ; silence.Reset(patience) {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch {
		case name == "data":
			data += value + "\n"
		case name == "event":
			kind = strings.TrimSpace(value)
		case kind == "problem" && line == "\n":
			return refusal(response, []byte(data))
		case data != "" && line == "\n":
			var event Event
			err := json.Unmarshal([]byte(data), &event)
			if err == nil {
				err = receive(event)
			}
			if err != nil {
				return err
			}
			data = ""
		}
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
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNoContent {
		r.wait, r.hasWorked, r.deniedAfter = firstWait, true, time.Time{}
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return nil, refusal(response, text)
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
