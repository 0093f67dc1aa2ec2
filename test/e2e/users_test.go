// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

// userARN returns the ARN of an IAM user of the region's account.
func (e *environment) userARN(name string) string {
	e.t.Helper()
	who, err := sts.NewFromConfig(e.aws).GetCallerIdentity(e.t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	return "arn:aws:iam::" + aws.ToString(who.Account) + ":user/" + name
}

// withUser adds a user with the rights of an administrator to the API of a manifest.
func (e *environment) withUser(text, name string) string {
	return strings.Replace(text, "\n  api:\n", "\n  api:\n    users:\n    - {arn: \""+e.userARN(name)+"\", groups: [\"slipway:cluster-admins\"]}\n", 1)
}

// checkUsers uses the API as IAM users, whose kubeconfig runs 'slipway token': alice is named in the manifest, eve is
// not. Neither has any permission in AWS.
func (e *environment) checkUsers() {
	e.t.Helper()
	config := filepath.Join(e.t.TempDir(), "kubeconfig")
	// Machines call STS at the region's address in the VPC, which the signature names.
	e.runSlipway("export", "kubeconfig", clusterName, "--exec", "--sts-endpoint", "http://198.18.0.1", "--kubeconfig", config)
	if text, err := os.ReadFile(config); err != nil || strings.Contains(string(text), "client-key-data") {
		e.t.Errorf("the kubeconfig has a key (%v):\n%s", err, text)
	}

	for name, want := range map[string]int{"alice": 0, "eve": 1} {
		key := e.createUser(name)
		start := time.Now()
		r := e.askAsUser(config, key)
		if (r.code == 0) != (want == 0) || want == 0 && !strings.Contains(r.out, e.userARN(name)) {
			e.t.Errorf("%s: %d %s%s", name, r.code, r.out, r.err)
		}
		e.t.Logf("%s was answered after %s", name, time.Since(start).Round(time.Millisecond))
		if name == "alice" && os.Getenv("SLIPWAY_LONG") != "" {
			e.removeUsers(config, key)
		}
	}
}

// createUser creates an IAM user without permissions, and returns its credentials.
func (e *environment) createUser(name string) *iamtypes.AccessKey {
	e.t.Helper()
	api := iam.NewFromConfig(e.aws)
	if _, err := api.CreateUser(e.t.Context(), &iam.CreateUserInput{UserName: &name}); err != nil {
		e.t.Fatal(err)
	}
	waiter := iam.NewUserExistsWaiter(api)
	if err := waiter.Wait(e.t.Context(), &iam.GetUserInput{UserName: &name}, time.Minute); err != nil {
		e.t.Fatal(err)
	}
	key, err := api.CreateAccessKey(e.t.Context(), &iam.CreateAccessKeyInput{UserName: &name})
	if err != nil {
		e.t.Fatal(err)
	}
	e.awaitKey(key.AccessKey)

	return key.AccessKey
}

// awaitKey returns when STS sees a new access key.
func (e *environment) awaitKey(key *iamtypes.AccessKey) {
	e.t.Helper()
	cfg := e.aws.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKeyId, *key.SecretAccessKey, "")
	isUnknown := func(err error) bool {
		refusal, ok := errors.AsType[smithy.APIError](err)
		return ok && refusal.ErrorCode() == "InvalidClientTokenId"
	}
	err := propagation.Wait(e.t.Context(), isUnknown, func() error {
		_, err := sts.NewFromConfig(cfg).GetCallerIdentity(e.t.Context(), &sts.GetCallerIdentityInput{})
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// askAsUser asks the API who the user with this access key is.
func (e *environment) askAsUser(config string, key *iamtypes.AccessKey) commandResult {
	e.t.Helper()
	own := maps.Clone(e.env)
	defer func() { e.env = own }()
	e.env = maps.Clone(own)
	e.env["AWS_ACCESS_KEY_ID"], e.env["AWS_SECRET_ACCESS_KEY"] = *key.AccessKeyId, *key.SecretAccessKey
	e.env["PATH"] = filepath.Dir(e.slipway) + ":" + os.Getenv("PATH")
	return e.runProgram(kubectlPath(filepath.Dir(e.cache)), "--kubeconfig", config, "auth", "whoami", "-o", "jsonpath={.status.userInfo}")
}

// removeUsers removes all users from the manifest. The API refuses the user with this access key soon after the machines
// follow: within a minute, and the 30 s for which it remembers an accepted token.
func (e *environment) removeUsers(config string, key *iamtypes.AccessKey) {
	e.t.Helper()
	text := e.runSlipway("get", "cluster", clusterName, "-o", "yaml")
	begin := strings.Index(text, "    users:\n")
	end := begin
	for _, line := range strings.SplitAfter(text[begin+len("    users:\n"):], "\n") {
		if !strings.HasPrefix(line, "    -") && !strings.HasPrefix(line, "      ") {
			break
		}
		end += len(line)
	}
	text = text[:begin] + text[end+len("    users:\n"):]
	file := filepath.Join(e.t.TempDir(), "without-users.yaml")
	writeFile(e.t, file, text)
	e.runSlipway("replace", "-f", file, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	start := time.Now()
	e.waitUntil("a removed user is refused", 2*time.Minute, func() error {
		// Without the last user kube-apiserver restarts, and answers nobody for some seconds.
		if r := e.askAsUser(config, key); !strings.Contains(r.err, "Unauthorized") {
			return fmt.Errorf("it is still %s %s", r.out, r.err)
		}
		return nil
	})
	e.t.Logf("COUNT a removed user was refused after %s", time.Since(start).Round(time.Second))
}
