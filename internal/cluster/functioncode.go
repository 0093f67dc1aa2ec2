// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// functionFile is the name of the program in the zip file of a function of the runtime provided.al2023.
const functionFile = "bootstrap"

// findFunctionCode returns the code of the function that keeps the DNS records of etcd's members, and the object to publish
// it as. The function has the architecture of the control plane. Both are zero if the cluster needs no function.
func findFunctionCode(session *Session, d *Desired) (model.FunctionCode, []node.Object, error) {
	if !model.UsesEtcdDNS(d.Manifests.Cluster.Spec) {
		return model.FunctionCode{}, nil, nil
	}

	arch := "amd64"
	for _, g := range d.Manifests.Groups {
		if g.Spec.Role == v1alpha1.RoleControlPlane {
			arch = d.Manifests.Arch(g.Spec.MachineType)
		}
	}

	path, err := findProgram(session.Env.FunctionPath, "slipway-dns", arch)
	if err != nil {
		return model.FunctionCode{}, nil, err
	}

	const hint = "run make build, or set SLIPWAY_DNS_BINARY, or set spec.etcd.discovery to Tags"
	if is, err := readELFArch(path); errors.Is(err, fs.ErrNotExist) {
		return model.FunctionCode{}, nil, diag.WithHint(fmt.Errorf("no function for %s at %s", arch, path), hint)
	} else if err != nil || is != arch {
		return model.FunctionCode{}, nil, diag.WithHint(fmt.Errorf("%s is not a program for %s", path, arch), hint)
	}

	sum := sha256.New()
	if err := writeDeploymentPackage(sum, path); err != nil {
		return model.FunctionCode{}, nil, err
	}

	code := model.FunctionCode{SHA256: hex.EncodeToString(sum.Sum(nil)), Arch: arch}
	object := node.Object{
		Key: node.FunctionKey(session.Name, code.SHA256),
		Agent: node.AgentBinary{SHA256: code.SHA256, Read: func() ([]byte, error) {
			var b bytes.Buffer
			err := writeDeploymentPackage(&b, path)

			return b.Bytes(), err
		}},
	}

	place, err := d.machineStoreKey(object.Key)
	code.Key = place

	return code, []node.Object{object}, err
}

// writeDeploymentPackage writes the zip file of the program at path. The same program gives the same bytes: the file has no
// time, and is not compressed, since the output of a compressor depends on its version.
func writeDeploymentPackage(to io.Writer, path string) error {
	program, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the function: %w", err)
	}

	defer func() { _ = program.Close() }() // opened for reading

	const executable = 0o755
	header := &zip.FileHeader{Name: functionFile, Method: zip.Store}
	header.SetMode(executable)
	z := zip.NewWriter(to)

	f, err := z.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("pack the function: %w", err)
	}

	if _, err := io.Copy(f, program); err != nil {
		return fmt.Errorf("pack the function at %s: %w", path, err)
	}

	return z.Close()
}
