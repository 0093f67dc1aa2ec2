// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// The private registry of the region's account, and the address in it where the images of the cluster are.
const (
	privateRegistry = "000000000000.dkr.ecr." + region + ".amazonaws.com"
	privateMirror   = privateRegistry + "/mirror"
)

// TestIsolatedFromECR creates examples/isolated.yaml with images from Amazon ECR, which asks for a token. Its machines reach
// the registry through VPC endpoints only, and their roles can pull from it and do nothing else there.
func TestIsolatedFromECR(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSlipway("state", "init", "--yes")
	e.runSteps(t, []step{
		{"images are mirrored", mirrorToECR},
		{"up", func(e *environment) {
			e.createExampleWith("isolated", "  assets:\n    containerRegistry: "+privateMirror+"\n")
			e.applyIsolated("direct")
		}},
		{"images come from ECR", checkPrivateImages},
		{"the token is secret", checkRegistryToken},
		{"machines cannot push", checkMachinesOnlyPull},
		{"delete leaves nothing", func(e *environment) {
			e.runSlipway("delete", "cluster", clusterName, "--destroy-data", "--yes")
			if left := e.listTagged(); len(left) > 0 {
				e.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		}},
	})
}

// awsNames sends requests for host names of AWS to the region, as the resolver of a VPC does.
type awsNames struct{ endpoint string }

func (a awsNames) RoundTrip(q *http.Request) (*http.Response, error) {
	sent := q.Clone(q.Context())
	sent.Host = q.URL.Host
	sent.URL.Scheme = "http"
	sent.URL.Host = strings.TrimPrefix(a.endpoint, "http://")

	res, err := http.DefaultTransport.RoundTrip(sent)
	if res != nil {
		res.Request = q // addresses in the answer are relative to it
	}

	return res, err
}

// registryOptions logs in to the private registry with the credentials of a client of AWS.
func (e *environment) registryOptions(cfg aws.Config) []remote.Option {
	e.t.Helper()
	out, err := ecr.NewFromConfig(cfg).GetAuthorizationToken(e.t.Context(), &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	text, err := base64.StdEncoding.DecodeString(*out.AuthorizationData[0].AuthorizationToken)
	if err != nil {
		e.t.Fatal(err)
	}
	user, password, _ := strings.Cut(string(text), ":")

	return []remote.Option{
		remote.WithTransport(awsNames{e.env["AWS_ENDPOINT_URL"]}), remote.WithContext(e.t.Context()),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password})),
	}
}

// mirrorToECR fills the private registry with `slipway assets mirror`, which reaches it by its name in AWS, with TLS: through a
// proxy, of which it knows no more than of any other. What it did is complete, so that a second run changes nothing.
func mirrorToECR(e *environment) {
	e.t.Helper()
	layers := "prod-" + region + "-starport-layer-bucket.s3." + region + ".amazonaws.com"
	variables := regiontest.StartProxy(e.t, e.env["AWS_ENDPOINT_URL"], privateRegistry, layers)
	maps.Copy(e.env, variables)
	defer maps.DeleteFunc(e.env, func(name, _ string) bool { return variables[name] != "" })

	e.runSlipway("assets", "mirror", "--to", privateMirror, "--yes")
	again := e.runProgram(e.slipway, "assets", "mirror", "--to", privateMirror, "--yes")
	if again.code != 0 || !strings.Contains(again.err, "are there; nothing changes") {
		e.t.Errorf("a second run: exit %d, %s%s", again.code, again.out, again.err)
	}
}

// checkPrivateImages checks that every machine has images of the private registry only, and that its kubelet has a credential
// provider for it.
func checkPrivateImages(e *environment) {
	e.t.Helper()
	machines := e.listMachines("worker")
	maps.Copy(machines, e.listMachines("control-plane"))
	if len(machines) != 5 {
		e.t.Fatalf("%d machines, want 5", len(machines))
	}
	for machine := range machines {
		images := strings.Fields(e.mustRunInMachine(machine, "ctr --namespace k8s.io images list -q 2>/dev/null"))
		private := 0
		for _, image := range images {
			switch {
			case strings.HasPrefix(image, privateMirror+"/"):
				private++
			case !strings.HasPrefix(image, "sha256:"): // the id of an image
				e.t.Errorf("%s has the image %s", machine, image)
			}
		}
		if private < 3 { // pause, flannel and kube-proxy
			e.t.Errorf("%s has the images %q", machine, images)
		}
		unit := e.mustRunInMachine(machine, "cat /etc/systemd/system/kubelet.service")
		if !strings.Contains(unit, "--image-credential-provider-config=") {
			e.t.Errorf("the kubelet of %s has no credential provider:\n%s", machine, unit)
		}
	}
}

// checkRegistryToken checks that only root reads the token of a machine, which is on a tmpfs, and that it is in no command line,
// journal or other file.
func checkRegistryToken(e *environment) {
	e.t.Helper()
	machine := slices.Sorted(maps.Keys(e.listMachines("worker")))[0]
	const file = "/run/slipway/registry-token.json"
	if got := strings.TrimSpace(e.mustRunInMachine(machine, "stat -c '%a %u' "+file+"; stat -f -c %T "+file)); got != "600 0\ntmpfs" {
		e.t.Errorf("%s has mode, owner and file system %q", file, got)
	}
	var stored struct{ Password string }
	if err := json.Unmarshal([]byte(e.mustRunInMachine(machine, "cat "+file)), &stored); err != nil || stored.Password == "" {
		e.t.Fatalf("no token: %v", err)
	}
	// The pattern is read from the file, so that the command line of the search does not have it.
	search := fmt.Sprintf(`umask 077; sed 's/.*"password":"\([^"]*\)".*/\1/' %s >/run/pattern
		grep -lF -f /run/pattern /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null
		journalctl --no-pager | grep -cF -f /run/pattern | grep -v '^0$'
		grep -rlF -f /run/pattern /etc /var/log /var/lib/kubelet /var/lib/slipway 2>/dev/null
		rm /run/pattern`, file)
	if found := strings.TrimSpace(e.mustRunInMachine(machine, search)); found != "" {
		e.t.Errorf("the token is also in:\n%s", found)
	}
}

// checkMachinesOnlyPull uses the role of a worker to pull from the mirror, which it may, and to push, to create a repository
// and to read another one, which it may not.
func checkMachinesOnlyPull(e *environment) {
	e.t.Helper()
	cfg := e.fetchWorkerCredentials(slices.Sorted(maps.Keys(e.listMachines("worker")))[0])
	options := e.registryOptions(cfg)
	pause := e.pauseImage()
	if _, err := remote.Get(pause, options...); err != nil {
		e.t.Errorf("a worker's role does not pull: %v", err)
	}

	image, err := random.Image(64, 1)
	if err != nil {
		e.t.Fatal(err)
	}
	attack, err := name.NewTag(pause.Context().Name() + ":attack")
	if err != nil {
		e.t.Fatal(err)
	}
	if err := remote.Write(attack, image, options...); err == nil || !strings.Contains(err.Error(), "DENIED") {
		e.t.Errorf("a worker's role pushes: %v", err)
	}
	_, err = ecr.NewFromConfig(cfg).CreateRepository(e.t.Context(), &ecr.CreateRepositoryInput{RepositoryName: aws.String("mirror/attack")})
	if err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		e.t.Errorf("a worker's role creates a repository: %v", err)
	}
	payments, err := name.NewTag(privateRegistry + "/payments:v1")
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := remote.Get(payments, options...); err == nil || !strings.Contains(err.Error(), "DENIED") {
		e.t.Errorf("a worker's role reads another repository: %v", err)
	}
}

// pauseImage returns the reference of an image of the mirror.
func (e *environment) pauseImage() name.Reference {
	e.t.Helper()
	repository, err := name.NewRepository(privateMirror + "/registry.k8s.io/pause")
	if err != nil {
		e.t.Fatal(err)
	}
	tags, err := remote.List(repository, e.registryOptions(e.aws)...)
	if err != nil || len(tags) == 0 {
		e.t.Fatalf("tags of %s: %v, %v", repository, tags, err)
	}

	return repository.Tag(tags[0])
}
