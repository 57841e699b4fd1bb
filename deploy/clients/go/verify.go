package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
)

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
		err = errors.Join(err, lines.Decode(&verdicts[len(verdicts)-1]))
	}
	return verdicts, err
}
