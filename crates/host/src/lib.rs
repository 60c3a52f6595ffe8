//! The running system as input to rcuwalk: directory trees and archives.
