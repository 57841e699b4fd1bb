// Uses the Go client for the tests in clients.rs: does one task, and prints JSON lines. The task is the first argument.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"channeld.local/feed"
)

type task struct {
	Do, URL   string
	TokenFile string `json:"token_file"`
	CaFile    string `json:"ca_file"`
	After     *int64
	Limit     int
	Count     int
	Program   string
	Arguments []string
}

// errAddress means that the address is not one of a feed.
var errAddress = errors.New("address")

// errStopped means that the test does not want the events to be committed.
var errStopped = errors.New("stopped")

func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func sayEvents(events ...feed.Event) {
	records := []json.RawMessage{}
	for _, event := range events {
		records = append(records, event.Record)
	}
	say(map[string]any{"events": records})
}

func main() {
	var task task
	if err := json.Unmarshal([]byte(os.Args[1]), &task); err != nil {
		panic(err)
	}
	err := do(context.Background(), task)
	var refused *feed.Error
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &refused):
		sayError(refused.Kind, refused.Status, refused.Oldest)
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		sayError("not-verified", 0, 0)
	case task.Program != "":
		sayError("verification", 0, 0)
	case err == errStopped:
		sayError("stopped", 0, 0)
	case err == errAddress:
		sayError("address", 0, 0)
	default:
		panic(err)
	}
}

func sayError(kind string, status int, oldest int64) {
	say(map[string]any{"error": map[string]any{"kind": kind, "status": status, "oldest": oldest}})
}

func do(ctx context.Context, task task) error {
	var authorities []byte
	if task.CaFile != "" {
		authorities, _ = os.ReadFile(task.CaFile)
	}
	var token func() (string, error)
	if task.TokenFile != "" {
		token = feed.TokenFile(task.TokenFile)
	}
	client, err := feed.New(task.URL, authorities, token)
	if err != nil {
		return errAddress
	}
	client.OnRetry = func(err error, _ time.Duration) {
		kind := "connection"
		if refused := (*feed.Error)(nil); errors.As(err, &refused) {
			kind = refused.Kind
		}
		say(map[string]any{"retry": kind})
	}
	after := feed.Oldest
	if task.After != nil {
		after = *task.After
	}
	if task.Limit > 0 {
		client.Limit = task.Limit
	}
	events := client.Events(ctx, "c0", after)
	switch task.Do {
	case "channels":
		channels, err := client.Channels(ctx)
		if err != nil {
			return err
		}
		listed := []any{}
		for _, channel := range channels {
			listed = append(listed, map[string]any{"name": channel.Name, "id": channel.ID, "position": channel.Position})
		}
		say(map[string]any{"channels": listed})
		return nil
	case "consume":
		lines := bufio.NewReader(os.Stdin)
		return client.Consume(ctx, "ledger", "c0", func(events []feed.Event) error {
			sayEvents(events...)
			if line, _ := lines.ReadString('\n'); line != "commit\n" {
				return errStopped
			}
			return nil
		})
	case "stream":
		events = client.Stream(ctx, "c0", after)
	}
	var read []feed.Event
	for event, err := range events {
		if err != nil {
			return err
		}
		read = append(read, event)
		if task.Do != "verify" {
			sayEvents(event)
		}
		if len(read) == task.Count {
			break
		}
	}
	if task.Do == "verify" {
		return verify(ctx, read, cmp.Or(task.Program, "channeld"), task.Arguments)
	}
	return nil
}

func verify(ctx context.Context, events []feed.Event, program string, arguments []string) error {
	verdicts, err := feed.Verify(ctx, events, program, arguments...)
	if err != nil {
		return err
	}
	statuses := []string{}
	for _, verdict := range verdicts {
		statuses = append(statuses, verdict.Status)
	}
	say(map[string]any{"verdicts": statuses})
	return nil
}
