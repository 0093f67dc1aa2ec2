// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// The environment variables of the function.
const (
	// EnvCluster is the cluster's name.
	EnvCluster = "SLIPWAY_CLUSTER"
	// EnvClusterID is the cluster's random id.
	EnvClusterID = "SLIPWAY_CLUSTER_ID"
	// EnvZone is the id of the hosted zone.
	EnvZone = "SLIPWAY_ZONE"
)

// Settings say which cluster's records the function keeps, and where. All are required.
type Settings struct {
	// Cluster is the cluster's name, the value of the tag slipway.dev/cluster.
	Cluster string
	// ClusterID is the cluster's random id, the value of the tag slipway.dev/id.
	ClusterID string
	// Zone is the id of the hosted zone of the name [v1alpha1.EtcdZone].
	Zone string
}

// ParseSettings reads the settings from the environment. The error names all that are missing.
func ParseSettings(lookup func(name string) string) (Settings, error) {
	s := Settings{
		Cluster:   lookup(EnvCluster),
		ClusterID: lookup(EnvClusterID),
		Zone:      lookup(EnvZone),
	}

	var missing []error

	for _, name := range []string{EnvCluster, EnvClusterID, EnvZone} {
		if lookup(name) == "" {
			missing = append(missing, fmt.Errorf("environment variable %s is not set", name))
		}
	}

	return s, errors.Join(missing...)
}

// Function is the Lambda function. Lambda may run it several times at once: the last one that ends has seen what the
// others changed.
type Function struct {
	Settings
	// Instances reads the machines of the control plane.
	Instances InstanceAPI
	// Records reads and changes the zone.
	Records RecordAPI
	// HTTP answers CloudFormation.
	HTTP *http.Client
	// Log receives one line for each run.
	Log *slog.Logger
	// Wait waits for a time, or until its context ends. Without it, a run that is denied its rights is not repeated.
	Wait func(context.Context, time.Duration) error
}

// New returns the function for AWS, with the settings that lookup finds in its environment. The SDK reads the region and
// the credentials of the function from the environment by itself.
func New(ctx context.Context, lookup func(name string) string, log *slog.Logger) (Function, error) {
	settings, err := ParseSettings(lookup)
	if err != nil {
		return Function{}, err
	}

	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return Function{}, fmt.Errorf("load the configuration of AWS: %w", err)
	}

	cfg.APIOptions = append(cfg.APIOptions, awsfix.AddBodyMiddleware)

	return Function{
		Settings:  settings,
		Instances: ec2.NewFromConfig(cfg),
		Records:   route53.NewFromConfig(cfg),
		HTTP:      &http.Client{Timeout: responseTimeout},
		Log:       log,
		Wait:      sleep.For,
	}, nil
}

// Result is what a run returns to Lambda.
type Result struct {
	// Machines is the number of pending and running machines of the control plane.
	Machines int `json:"machines"`
	// Changes is the number of records that were changed or deleted.
	Changes int `json:"changes"`
}

// maxRounds bounds how often a run compares the records again after it has changed them.
const maxRounds = 5

// responseTimeout limits the time for an answer to CloudFormation.
const responseTimeout = 10 * time.Second

// Handle makes the records those of the machines that run now, or deletes them with the resource of a stack. It compares
// the records for every other event, also for one that it cannot read.
func (f Function) Handle(ctx context.Context, body json.RawMessage) (Result, error) {
	event, err := ParseEvent(body)
	if err != nil {
		f.Log.WarnContext(ctx, "the event is not known; comparing all records", slog.Any("error", err))
	}

	do := func(ctx context.Context) (Result, error) { return f.follow(ctx, event) }
	if event.Remove {
		do = f.Remove
	}

	result, err := f.untilAllowed(ctx, do)
	if event.callback.ResponseURL != "" {
		err = errors.Join(err, f.respond(ctx, event.callback, err))
	}

	attributes := []any{
		slog.String("event", event.Type),
		slog.String("group", event.Group),
		slog.String("instance", event.Instance),
		slog.Int("machines", result.Machines),
		slog.Int("changes", result.Changes),
	}

	if err != nil {
		f.Log.ErrorContext(ctx, "records are not up to date", append(attributes, slog.Any("error", err))...)
		return result, err
	}

	f.Log.InfoContext(ctx, "records are up to date", attributes...)

	return result, nil
}

// How often and how long a run waits for its rights. IAM makes new ones known everywhere within seconds, and the first run is
// just after the creation of the role.
const (
	maxDenied   = 6
	deniedPause = 5 * time.Second
)

// untilAllowed repeats do while AWS denies it.
func (f Function) untilAllowed(
	ctx context.Context,
	do func(context.Context) (Result, error),
) (result Result, err error) {
	for range maxDenied {
		result, err = do(ctx)
		if !isDenied(err) || f.Wait == nil || f.Wait(ctx, deniedPause) != nil {
			return result, err
		}
	}

	return result, err
}

// isDenied reports whether the function lacks a right.
func isDenied(err error) bool {
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}

	switch e.ErrorCode() {
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		return true
	}

	return false
}

// How often and how long a run waits for EC2 to show the launch or termination that it was called for. EC2 is eventually
// consistent, and no other event may follow for a long time.
const (
	maxUnseen   = 10
	unseenPause = 2 * time.Second
)

// follow makes the records those of the machines, and does so again while EC2 does not show what the event says.
func (f Function) follow(ctx context.Context, event Event) (Result, error) {
	changes := 0
	run := resync{Function: f}

	for range maxUnseen {
		result, machines, err := run.compare(ctx)
		changes += result.Changes
		result.Changes = changes

		if err != nil || event.isShownBy(machines) || f.Wait == nil || f.Wait(ctx, unseenPause) != nil {
			return result, err
		}
	}

	f.Log.WarnContext(
		ctx,
		"EC2 does not show what the event says",
		slog.String("event", event.Type),
		slog.String("instance", event.Instance),
	)

	result, _, err := run.compare(ctx)
	result.Changes += changes

	return result, err
}

// Resync compares the records with the machines and changes them, until a comparison finds no difference: another run
// may have changed them at the same time, or machines may have come and gone.
func (f Function) Resync(ctx context.Context) (Result, error) {
	result, _, err := (&resync{Function: f}).compare(ctx)

	return result, err
}

// isConflict reports whether Route 53 refused a change that does not fit the records: another run was faster.
func isConflict(err error) bool {
	e, ok := errors.AsType[smithy.APIError](err)
	return ok && e.ErrorCode() == "InvalidChangeBatch"
}
