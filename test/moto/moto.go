// SPDX-License-Identifier: Apache-2.0

// Package moto starts moto for tests. moto is an emulator of AWS that shares neither code nor
// authors with the local region. The package does not depend on the code under test.
package moto

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
)

// scriptPath is the path of the script that starts and stops moto, relative to the root of the
// repository.
const scriptPath = "test/moto/moto-up.sh"

// The exit statuses of the script and of the shell on a machine without moto.
const (
	exitNoMoto    = 3
	exitNoProgram = 127
)

// Start starts an empty moto on a free port, so that packages can be tested concurrently, and stops
// it when t ends. It skips t, with the reason, on a machine without moto.
func Start(t *testing.T) aws.Config {
	t.Helper()
	return StartShared(t, t)
}

// StartShared is like Start, but moto runs until owner ends, so that several tests can share it.
func StartShared(t, owner *testing.T) aws.Config {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED: no bash to start moto with")
	}
	path := findScript(t)
	port := freePort(t)
	runDir := owner.TempDir()
	dir := "MOTO_RUN_DIR=" + runDir
	cmd := exec.CommandContext(t.Context(), bash, path, "start", port)
	cmd.Env = append(cmd.Environ(), "MOTO_SHIM=1", dir)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && (exit.ExitCode() == exitNoMoto || exit.ExitCode() == exitNoProgram) {
		t.Skipf("SKIPPED: no moto on this machine: %s", out)
	}
	if err != nil {
		t.Fatalf("start moto: %v\n%s", err, out)
	}
	ctx := context.WithoutCancel(t.Context())
	owner.Cleanup(func() {
		if owner.Failed() {
			owner.Logf("the end of moto's log:\n%s", readLogEnd(filepath.Join(runDir, port, "log")))
		}
		stop := exec.CommandContext(ctx, bash, path, "stop", port)
		stop.Env = append(stop.Environ(), dir)
		if out, err := stop.CombinedOutput(); err != nil {
			owner.Errorf("stop moto: %v\n%s", err, out)
		}
	})
	url := "http://127.0.0.1:" + port
	cfg := awstest.NewConfig(url, "us-east-1", credentials.NewStaticCredentialsProvider("test", "test", ""))
	cfg.RetryMaxAttempts = 0

	return cfg
}

// readLogEnd returns the last tracebacks of moto's log, for the message of a failed test.
func readLogEnd(path string) string {
	const size = 6000
	body, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	return string(body[max(0, len(body)-size):])
}

// FindImage returns the ID of an amd64 image of moto. The call takes about a second, so call it
// once.
func FindImage(t *testing.T, cfg aws.Config) string {
	t.Helper()
	out, err := ec2.NewFromConfig(cfg).DescribeImages(t.Context(), &ec2.DescribeImagesInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range out.Images {
		if i.Architecture == types.ArchitectureValuesX8664 && aws.ToString(i.RootDeviceName) != "" && i.Platform == "" {
			return *i.ImageId
		}
	}
	t.Fatal("moto has no image")
	return ""
}

// findScript returns the path of the script. It searches the root of the repository from the
// current folder upwards.
func findScript(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, scriptPath)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	t.Fatalf("no go.mod above the test: %v", err)
	return ""
}

// freePort returns a port on which nothing listens. It is below the kernel's range for connections: one of another test could
// take it before moto does.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", 20000+n.Int64())
		if free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			if err := free.Close(); err != nil {
				t.Fatal(err)
			}
			return address[strings.LastIndex(address, ":")+1:]
		}
	}
	t.Fatal("no free port")
	return ""
}
