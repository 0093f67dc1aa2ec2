// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/metricsgate"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Env holds the resources of the process.
type Env struct {
	// Stdin has the request of the kubelet to its credential provider, and Stdout receives the answer.
	Stdin  io.Reader
	Stdout io.Writer
	// Stderr receives logs and usage messages.
	Stderr io.Writer
	// Getenv reads an environment variable; the gate to metrics needs it.
	Getenv func(string) string
	// Now is the clock.
	Now func() time.Time
	// Console is the path of the serial console.
	Console string
}

// Main runs slipway-node with these arguments until ctx ends. It returns an error if it stops
// earlier.
func Main(ctx context.Context, args []string, env Env) error {
	if len(args) == 1 && args[0] == kube.CredentialProviderCommand {
		return provideCredentials(&HostFS{Dir: "/"}, env)
	}

	if len(args) > 0 && args[0] == metricsgate.Command {
		if err := hardenProcess(); err != nil {
			return err
		}

		gate := metricsgate.Env{Stderr: env.Stderr, Getenv: env.Getenv, Now: env.Now}

		return metricsgate.Main(ctx, args[1:], gate)
	}

	flags := flag.NewFlagSet("slipway-node", flag.ContinueOnError)
	flags.SetOutput(env.Stderr)
	path := flags.String("config", "/etc/slipway/boot.json", "path of the boot configuration")
	once := flags.Bool("once", false, "converge once and exit")
	if len(args) == 0 || args[0] != "run" {
		return errors.New(
			"usage: slipway-node run [--config FILE] [--once], credential-provider, or metrics-gate",
		)
	}

	if err := flags.Parse(args[1:]); err != nil {
		return err
	}

	if err := hardenProcess(); err != nil {
		return err
	}

	a, err := newAgent(ctx, *path, env)
	if err != nil {
		return err
	}

	if *once {
		return a.Converge(ctx)
	}

	return a.ConvergeAndMaintain(ctx)
}

// newAgent returns an agent for the real machine and AWS, with the boot configuration at path.
func newAgent(ctx context.Context, path string, env Env) (*Agent, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read boot configuration: %w", err)
	}

	var boot node.BootConfig
	if err := json.Unmarshal(body, &boot); err != nil {
		return nil, fmt.Errorf("read boot configuration %s: %w", path, err)
	}

	cfg, err := loadAWSConfig(ctx, boot.Region)
	if err != nil {
		return nil, err
	}

	log := slog.New(slog.NewTextHandler(env.Stderr, nil))
	buckets := s3.NewFromConfig(cfg, store.ExpectOwner(boot.StoreOwner))
	keys := kms.NewFromConfig(cfg)
	// A download may take long, so only the response headers have a timeout.
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ResponseHeaderTimeout: 30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
	}

	a := &Agent{
		Boot: boot,
		Root: &HostFS{Dir: "/"},
		Run:  execRunner{},
		Open: Openers{
			S3:   openS3(buckets),
			HTTP: HTTPOpener{Client: &http.Client{Transport: transport}},
		},
		Changing: s3Reader{api: buckets},
		Metadata: imds.NewFromConfig(cfg),

		AWSEndpoint: aws.ToString(cfg.BaseEndpoint),
		Registry:    openRegistry(cfg),
		Images:      containerdImages{socket: containerdSocket},

		EC2:      ec2.NewFromConfig(cfg),
		Scaling:  autoscaling.NewFromConfig(cfg),
		Sealer:   store.NewKMSSealer(keys, ""),
		SealerOf: func(keyARN string) store.Sealer { return store.NewKMSSealer(keys, keyARN) },
		Store:    openStore(buckets),
		Sign: join.Signer{
			Credentials: cfg.Credentials,
			Region:      boot.Region,
			Now:         env.Now,
			Endpoint:    join.STSEndpoint(aws.ToString(cfg.BaseEndpoint), boot.Region),
		},
		Signals: cloudformation.NewFromConfig(cfg),
		HTTP:    &http.Client{Transport: transport, Timeout: 20 * time.Second},
		Report:  &Reporter{Open: openConsole(env.Console), Log: log, Now: env.Now},
		Log:     log,
		Now:     env.Now,
		Wait:    sleep.For,
	}
	filterPackets(a)

	return a, nil
}

// loadAWSConfig returns the configuration of AWS clients, with the credentials of the machine's role.
func loadAWSConfig(ctx context.Context, region string) (aws.Config, error) {
	// The SDK's default client waits for a response without limit.
	answers := awshttp.NewBuildableClient().WithTransportOptions(
		func(t *http.Transport) { t.ResponseHeaderTimeout = 30 * time.Second },
	).WithDialerOptions(func(d *net.Dialer) { d.Control = markMetadata })
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithHTTPClient(answers),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsfix.AddBodyMiddleware}))
	if err != nil {
		return aws.Config{}, fmt.Errorf("configure AWS: %w", err)
	}

	return cfg, nil
}

// openRegistry returns clients of Amazon ECR in any region.
func openRegistry(cfg aws.Config) func(region string) ecrlogin.API {
	return func(region string) ecrlogin.API {
		return ecr.NewFromConfig(cfg, func(o *ecr.Options) { o.Region = region })
	}
}

func openStore(api *s3.Client) func(string) (store.Store, error) {
	return func(url string) (store.Store, error) {
		at, err := store.ParseURL(url)
		if err != nil {
			return nil, err
		}

		return store.NewS3Store(api, at.Bucket, at.Prefix), nil
	}
}

func openS3(api *s3.Client) func(context.Context, string) (io.ReadCloser, error) {
	return func(ctx context.Context, url string) (io.ReadCloser, error) {
		bucket, key, ok := strings.Cut(strings.TrimPrefix(url, "s3://"), "/")
		if !ok {
			return nil, fmt.Errorf("get %s: URL has no object key", url)
		}

		out, err := api.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", url, err)
		}

		return out.Body, nil
	}
}

// s3Reader is the ChangingReader for S3.
type s3Reader struct{ api *s3.Client }

// ReadIfChanged implements ChangingReader.
func (r s3Reader) ReadIfChanged(ctx context.Context, url, etag string) ([]byte, string, error) {
	at, err := store.ParseURL(url)
	if err != nil {
		return nil, "", err
	}

	in := &s3.GetObjectInput{Bucket: &at.Bucket, Key: &at.Prefix}
	if etag != "" {
		in.IfNoneMatch = &etag
	}

	out, err := r.api.GetObject(ctx, in)
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		switch response.HTTPStatusCode() {
		case http.StatusNotModified:
			return nil, etag, nil
		case http.StatusNotFound:
			return nil, "", fmt.Errorf("get %s: %w", url, store.ErrNotFound)
		case http.StatusForbidden:
			// Workers may not list the bucket: then S3 answers 403 for an object that does not exist.
			return nil, "", fmt.Errorf("get %s: access denied, or there is none: %w", url, store.ErrNotFound)
		}
	}

	if err != nil {
		return nil, "", fmt.Errorf("get %s: %w", url, err)
	}

	defer func() { _ = out.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(out.Body, maxRevisionsBytes))
	if err != nil {
		return nil, "", fmt.Errorf("get %s: %w", url, err)
	}

	return body, aws.ToString(out.ETag), nil
}

// maxRevisionsBytes limits the revisions of a role, some 4 KB a group, and the launches, at most 700 KB a group of Karpenter.
const maxRevisionsBytes = 32 << 20

func openConsole(path string) func() (io.WriteCloser, error) {
	return func() (io.WriteCloser, error) { return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) }
}

// execRunner is the Runner that executes programs.
type execRunner struct{}

// Run returns the combined output. The error contains the output too.
func (execRunner) Run(ctx context.Context, name string, args ...string) (string, error) {
	combined, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	output := string(combined)
	if err != nil {
		err = fmt.Errorf("%s %s: %s: %w", name, strings.Join(args, " "), strings.TrimSpace(output), err)
	}

	return output, err
}
