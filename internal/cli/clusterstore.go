// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// stateURL is the state store that was asked for.
func (a *app) stateURL() (string, error) {
	if url := a.flagOrEnv(a.stateFlag, "SLIPWAY_STATE"); url != "" {
		return url, nil
	}

	return "", withHint(
		errors.New("no state store is given"),
		"give --state URL or SLIPWAY_STATE: file:///dir or s3://bucket/prefix",
	)
}

func (a *app) storeOptions() store.Options {
	return store.Options{
		AWS:        a.awsConfig,
		KeyFile:    a.flagOrEnv(a.stateKeyFlag, "SLIPWAY_STATE_KEY"),
		Passphrase: a.Getenv("SLIPWAY_STATE_PASSPHRASE"),
	}
}

// openStore opens the state store, which must have been initialised.
func (a *app) openStore(ctx context.Context) (store.Store, store.Sealer, error) {
	url, err := a.stateURL()
	if err != nil {
		return nil, nil, err
	}

	return a.openStoreAt(ctx, url)
}

// openedStore is a store that this run has opened.
type openedStore struct {
	store  store.Store
	sealer store.Sealer
}

// openStoreAt opens a store once in a run.
func (a *app) openStoreAt(ctx context.Context, url string) (store.Store, store.Sealer, error) {
	if o, ok := a.openStores[url]; ok {
		return o.store, o.sealer, nil
	}

	s, sealer, err := store.Open(ctx, url, a.storeOptions())
	if err != nil {
		return nil, nil, err
	}

	if a.openStores == nil {
		a.openStores = map[string]openedStore{}
	}

	a.openStores[url] = openedStore{s, sealer}

	return s, sealer, nil
}

// openMachineStore opens the store that a cluster's machines read: spec.configStore.base, else the state store.
func (a *app) openMachineStore(ctx context.Context, set manifest.Set) (store.Store, store.Sealer, error) {
	if base := set.Cluster.Spec.ConfigStore.Base; base != "" {
		return a.openStoreAt(ctx, base)
	}

	s, sealer, err := a.openStore(ctx)
	if err != nil {
		return nil, nil, err
	}

	return a.selectMachineStore(ctx, set, s, sealer)
}

// selectMachineStore is openMachineStore where the state store is open.
func (a *app) selectMachineStore(
	ctx context.Context,
	set manifest.Set,
	s store.Store,
	sealer store.Sealer,
) (store.Store, store.Sealer, error) {
	if base := set.Cluster.Spec.ConfigStore.Base; base != "" {
		return a.openStoreAt(ctx, base)
	}

	if !strings.HasPrefix(s.URL(), "s3://") {
		return nil, nil, withHint(
			fmt.Errorf("machines cannot read the state store %s", s.URL()),
			"set spec.configStore.base of the cluster to an s3:// URL that slipway state init has made, or keep the state on S3",
		)
	}

	return s, sealer, nil
}

// clusterName is the argument, else --name, else SLIPWAY_CLUSTER.
func (a *app) clusterName(args []string, flag string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}

	if name := a.flagOrEnv(flag, "SLIPWAY_CLUSTER"); name != "" {
		return name, nil
	}

	return "", withHint(errors.New("no cluster is named"), "give its NAME, --name or SLIPWAY_CLUSTER")
}

// addNameFlag adds --name to a command about one cluster and limits its arguments to NAME.
func addNameFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	cmd.Args = cobra.MaximumNArgs(1)
}

// checkName refuses what cannot be the name of a cluster, before it becomes part of a key.
func checkName(name string) error {
	if !manifest.ValidName(name) {
		return withHint(
			fmt.Errorf("%q is no cluster's name", name),
			"a name has lower-case letters, digits and dashes",
		)
	}

	return nil
}

// requireCluster fails if there is no such cluster, so that nothing is locked for it.
func (a *app) requireCluster(ctx context.Context, s store.Store, name string) error {
	if err := checkName(name); err != nil {
		return err
	}

	_, err := s.Get(ctx, manifest.ClusterKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return noClusterError(name, s)
	}

	return err
}

func noClusterError(name string, s store.Store) error {
	return withHint(fmt.Errorf("there is no cluster %s in %s: %w", name, s.URL(), store.ErrNotFound),
		"see: slipway get clusters; make one with: slipway create cluster "+name)
}

// loadManifests reads a cluster's manifests from s, defaulted and valid.
func (a *app) loadManifests(ctx context.Context, s store.Store, name string) (manifest.Set, error) {
	text, _, err := readDocuments(ctx, s, name)
	if err != nil {
		return manifest.Set{}, err
	}

	set, findings := manifest.Parse(text)
	set = manifest.Default(set)
	findings = append(findings, manifest.Validate(set)...)
	if err := findings.Err(); err != nil {
		return manifest.Set{}, err
	}

	return set, nil
}

// readDocuments returns a cluster's documents as one text, and the ETag of each object.
func readDocuments(ctx context.Context, s store.Store, name string) ([]byte, map[string]string, error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}

	keys, err := s.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return nil, nil, err
	}

	keys = append([]string{manifest.ClusterKey(name)}, keys...)
	objects := make([]store.Object, len(keys))
	errs := make([]error, len(keys))
	slots := make(chan struct{}, maxConcurrentReads)
	var wg sync.WaitGroup

	for i, key := range keys {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			objects[i], errs[i] = s.Get(ctx, key)
		})
	}

	wg.Wait()
	if errors.Is(errs[0], store.ErrNotFound) {
		return nil, nil, noClusterError(name, s)
	}

	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}

	docs := make([][]byte, 0, len(keys))
	etags := map[string]string{}
	for i, o := range objects {
		docs = append(docs, o.Body)
		etags[keys[i]] = o.ETag
	}

	return bytes.Join(docs, []byte("\n---\n")), etags, nil
}

// maxConcurrentReads is how many objects are read at a time.
const maxConcurrentReads = 16

// confirm returns nil if the change may go ahead: --yes was given, or a person at the terminal typed yes.
func (a *app) confirm(question string) error {
	if a.yes {
		return nil
	}

	if !isTerminal(a.Stdin) {
		return withHint(
			errors.New("nothing was changed: it takes --yes"),
			"look at what is printed above, then run it again with --yes",
		)
	}

	fmt.Fprintf(a.Stderr, "%s Type yes to go ahead: ", question)
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}

	if err != nil {
		return fmt.Errorf("nothing was changed: read the answer: %w", err)
	}

	return errors.New("nothing was changed: the answer was not yes")
}
