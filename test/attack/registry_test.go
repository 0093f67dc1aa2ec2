// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const registryHost = regiontest.AccountID + ".dkr.ecr.us-east-1.amazonaws.com"

// mirroredCluster is a cluster whose images come from the private registry.
const mirroredCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  assets: {containerRegistry: ` + registryHost + `/mirror}
  networking:
    subnets: [{name: public-a, type: Public, zone: us-east-1a}]
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane}
spec: {role: ControlPlane, minSize: 1}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers}
spec: {role: Worker}
`

// registryOptions logs in to the private registry as a caller.
func (l *lab) registryOptions(c caller) []remote.Option {
	l.Helper()
	out, err := ecr.NewFromConfig(l.config(c)).GetAuthorizationToken(l.Context(), &ecr.GetAuthorizationTokenInput{})
	l.check(err)
	text, err := base64.StdEncoding.DecodeString(*out.AuthorizationData[0].AuthorizationToken)
	l.check(err)
	user, password, _ := strings.Cut(string(text), ":")

	return []remote.Option{
		remote.WithTransport(regiontest.HostNames{Region: l.region}), remote.WithContext(l.Context()),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password})),
	}
}

// pushTo pushes an image to a repository.
func (l *lab) pushTo(repository string, options []remote.Option) error {
	l.Helper()
	image, err := random.Image(64, 1)
	l.check(err)
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)

	return remote.Write(ref, image, options...)
}

// pullFrom reads an image of a repository.
func (l *lab) pullFrom(repository string, options []remote.Option) error {
	l.Helper()
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)
	_, err = remote.Get(ref, options...)

	return err
}

// pullAllFrom pulls an image of a repository with its layers, and asks for each layer first whether it is there.
func (l *lab) pullAllFrom(repository string, options []remote.Option) error {
	l.Helper()
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)
	image, err := remote.Image(ref, options...)
	if err != nil {
		return err
	}

	layers, err := image.Layers()
	if err != nil {
		return err
	}

	for _, layer := range layers {
		if found, err := partial.Exists(layer); err != nil || !found {
			return fmt.Errorf("the layer is there: %t, %w", found, err)
		}

		if err := validate.Layer(layer); err != nil {
			return err
		}
	}

	return nil
}

// TestMachinesCannotPush: root on a machine replaces an image of the cluster's private registry, and so gets every machine that
// pulls it; or it reads the images of another team. The role of a machine may only pull, and only from the mirror of its
// manifest. A cluster without a private registry gives its machines nothing there, although the boundary would allow it.
func TestMachinesCannotPush(t *testing.T) {
	l := newLab(t)
	api := ecr.NewFromConfig(l.config(caller{}))
	root := l.registryOptions(caller{})
	for _, repository := range []string{"mirror/registry.k8s.io/pause", "mirror-2/pause", "payments"} {
		_, err := api.CreateRepository(t.Context(), &ecr.CreateRepositoryInput{RepositoryName: &repository})
		l.check(err)
		l.check(l.pushTo(repository, root))
	}

	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", mirroredCluster), "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")

	for _, role := range []string{l.roleOfSlot("a"), "demo.worker.us-east-1"} {
		machine := l.assumed(role)
		options := l.registryOptions(machine)
		l.check(l.pullFrom("mirror/registry.k8s.io/pause", options))
		for what, err := range map[string]error{
			"push to the mirror":             l.pushTo("mirror/registry.k8s.io/pause", options),
			"push to a repository of others": l.pushTo("payments", options),
			"pull from another prefix":       l.pullFrom("mirror-2/pause", options),
			"pull from another repository":   l.pullFrom("payments", options),
		} {
			refused, ok := errors.AsType[*transport.Error](err)
			if !ok || refused.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: the attack succeeded or failed for another reason: %v", role, what, err)
			}
		}
		attacker := ecr.NewFromConfig(l.config(machine))
		_, err := attacker.CreateRepository(t.Context(), &ecr.CreateRepositoryInput{RepositoryName: sdk.String("mirror/attack")})
		l.denied(role+": create a repository", err)
		_, err = attacker.DescribeRepositories(t.Context(), &ecr.DescribeRepositoriesInput{})
		l.denied(role+": list the repositories", err)
	}

	plain := newLab(t)
	plain.createCluster()
	_, err := ecr.NewFromConfig(plain.config(plain.assumed("demo.worker.us-east-1"))).
		GetAuthorizationToken(t.Context(), &ecr.GetAuthorizationTokenInput{})
	plain.denied("log in without a private registry", err)
}
